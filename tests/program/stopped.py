#!/usr/bin/env python3
"""Ctrl-C, other signals and keys while a chat answers. usage: stopped.py MIXTAPE MODEL"""
import os
import resource
import signal
import sys
import time

from on_terminal import Terminal

os.environ["TERM"] = "xterm"
mixtape, model = sys.argv[1:]
command = [mixtape, "chat", "-m", model, "-n", "400", "--temp", "2", "--device", "cpu"]


def chat(*more):
    terminal = Terminal(80, command + list(more))
    terminal.until(b"> ")
    return terminal


# It stops an answer, and the conversation goes on; at the prompt the second one ends the program.
one = chat()
one.type("Once upon a time\n")
one.until(b"\n")
one.until_more(20)
one.stop()
one.until(b"> ")
assert one.is_alive()
one.type("/clear\n")
one.until(b"> /clear")
one.until(b"> ")
one.type("\x03")
one.until(b"Ctrl-C again")
one.until(b"> ")
assert one.is_alive()
one.type("\x03")
status = one.end()
assert status == -signal.SIGINT, status

# A second model is asked, too, where the first one's answer was stopped; an unfinished paste ends by Ctrl-C.
two = chat("--against", model)
two.type("\x1b[200~abc")
time.sleep(0.3)
two.type("\x03")
two.until(b"^C")
two.until(b"> ")
two.type("Once upon a time\r")
for _ in range(2):
    two.until(b"model]\r\n")
    two.until_more(20)
    two.stop()
two.until(b"> ")
two.type("\x04")
status = two.end()
assert status == 0, status

# What is typed and pasted while it answers waits, unshown, for the next message; Ctrl-D ends the chat after the answer.
one = chat()
one.type("Once upon a time\r")
one.until(b"\n")
one.until_more(20)
one.type("\x1b[200~wxyz\rzyxw\r\x1b[201~.")
one.until(b"> wxyz\r\nzyxw.")
assert one.got.count(b"wxyz") == 1, one.got
one.type("\x15\r")
one.until(b"> ")
one.type("Once upon a time\r")
one.until(b"\n")
one.until_more(20)
one.type("\x04")
status = one.end()
assert status == 0, status

# Every signal that ends or stops it leaves the terminal as it was, at the prompt and in an answer. The watcher is a shell
# that says so, and goes on with what was stopped.
WATCH = """
import os, signal, subprocess, sys, termios
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
process = os.fork()
if process == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
print("process", process, flush=True)
while True:
    status = os.waitpid(process, os.WUNTRACED)[1]
    flags, usual = termios.tcgetattr(0)[3], termios.ECHO | termios.ICANON | termios.ISIG
    os.tcsetpgrp(0, os.getpid())
    print("found", os.WSTOPSIG(status) if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status),
          "usual" if flags & usual == usual else "raw", flush=True)
    if not os.WIFSTOPPED(status):
        break
    os.tcsetpgrp(0, process)
    os.kill(process, signal.SIGCONT)
"""


def watched():
    terminal = Terminal(80, [sys.executable, "-c", WATCH, *command])
    terminal.until(b"process ")
    terminal.until(b"\n")
    process = int(terminal.got[:terminal.seen].split()[-1])
    terminal.until(b"> ")
    return terminal, process


one, process = watched()
one.type("abc\x1a")
one.until(b"found %d usual\r\n" % signal.SIGTSTP)
one.until(b"> abc")
one.type("\x15Once upon a time\r")
one.until(b"\n")
one.until_more(20)
one.type("\x1a")
one.until(b"found %d usual\r\n" % signal.SIGTSTP)
one.until_more(20)
one.type("\x04")
one.until(b"> ")
one.until(b"found 0 usual")
assert one.end() == 0 and not one.screen.modes, one.got
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for number in (signal.SIGQUIT, signal.SIGUSR1, signal.SIGABRT, signal.SIGTERM):
    for is_answering in (False, True):
        one, process = watched()
        if is_answering:
            one.type("Once upon a time\r")
            one.until(b"\n")
            one.until_more(20)
        os.kill(process, number)
        one.until(b"found %d usual" % -number)
        assert one.end() == 0 and not one.screen.modes, (number, one.got)
