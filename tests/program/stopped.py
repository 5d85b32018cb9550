#!/usr/bin/env python3
"""Ctrl-C in a chat. usage: stopped.py MIXTAPE MODEL"""
import os
import signal
import sys
import time

from on_terminal import Terminal

os.environ["TERM"] = "xterm"
mixtape, model = sys.argv[1:]


def chat(*more):
    terminal = Terminal(80, [mixtape, "chat", "-m", model, "-n", "400", "--temp", "2", "--device", "cpu", *more])
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
