#!/usr/bin/env python3
"""Runs a command on a terminal of a width, prints what the terminal got, ends with its status.

usage: on_terminal.py COLUMNS COMMAND...
"""
import fcntl
import os
import pty
import struct
import sys
import termios

pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:  # the other end is closed
        break
    if not data:
        break
    sys.stdout.buffer.write(data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
