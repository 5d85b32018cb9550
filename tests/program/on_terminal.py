#!/usr/bin/env python3
"""Runs a command on a terminal of a width, prints what the terminal got, ends with its status.

usage: on_terminal.py COLUMNS COMMAND...

Imported: Terminal, which is typed on and whose screen is looked at.
"""
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
import unicodedata

ROWS = 24


class Screen:
    """What a terminal shows of the few controls that mixtape uses. One cell a column; a wide letter's second is empty."""

    def __init__(self, columns):
        self.columns, self.row, self.column = columns, 0, 0
        self.cells, self.modes = [[]], set()
        self.decoder, self.rest = codecs.getincrementaldecoder("utf-8")("replace"), ""

    def rows(self):
        return ["".join(row).rstrip() for row in self.cells[-ROWS:]]

    def resize(self, columns):
        """To fewer or more columns; what is wider goes on in the row below."""
        self.columns, cells, self.cells = columns, self.cells, []
        for i, row in enumerate(cells):
            if i == self.row:
                at = len(self.cells) + self.column // columns
            self.cells += [row[j:j + columns] for j in range(0, max(1, len(row)), columns)]
        self.row, self.column = at, self.column % columns

    def feed(self, data):
        text = self.rest + self.decoder.decode(data)
        self.rest = ""
        while text:
            control = re.match(r"\x1b\[(\??)(\d*)([A-Za-z])", text)
            if control:
                self.obey(control[1] + control[3], int(control[2] or 1), control[2])
                text = text[control.end():]
            elif text[0] == "\x1b":
                self.rest, text = text, ""  # the rest of it is to come
            else:
                self.put(text[0])
                text = text[1:]

    def obey(self, name, count, number):
        if name == "A":
            assert self.row >= count, "above the screen"
            self.row -= count
        elif name == "C":
            self.column += count
        elif name in "JK":
            self.cells[self.row] = self.cells[self.row][:self.column]
            if name == "J":
                self.cells = self.cells[:self.row + 1]
        elif name in ("?h", "?l"):
            (self.modes.add if name == "?h" else self.modes.discard)(number)
        else:
            raise AssertionError(f"a control that no test knows: {name}")

    def put(self, letter):
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self.row += 1
            if self.row == len(self.cells):
                self.cells.append([])
        else:
            width = 0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
            if self.column + width > self.columns:
                self.put("\r")
                self.put("\n")
            row = self.cells[self.row]
            row.extend(" " * (self.column + width - len(row)))
            if width == 0:
                row[self.column - 1] += letter
            else:
                row[self.column:self.column + width] = [letter] + [""] * (width - 1)
            self.column += width


class Terminal:
    def __init__(self, columns, command):
        self.screen, self.got, self.seen, self.status = Screen(columns), b"", 0, None
        self.process, self.file = pty.fork()
        if self.process == 0:
            fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
            os.execv(command[0], command)

    def read(self, seconds=None):
        """What came within that time, at the end b""; None: nothing."""
        if not select.select([self.file], [], [], seconds)[0]:
            return None
        try:
            return os.read(self.file, 65536)
        except OSError:  # the other end is closed
            return b""

    def resize(self, columns):
        self.screen.resize(columns)
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))

    def type(self, keys):
        os.write(self.file, keys.encode() if isinstance(keys, str) else keys)

    def wait(self, is_there, seconds=30):
        """Until it holds for the screen."""
        end = time.time() + seconds
        while not is_there(self.screen):
            data = self.read(max(0.0, end - time.time()))
            assert data, (self.screen.rows(), (self.screen.row, self.screen.column), self.got)
            self.got += data
            self.screen.feed(data)

    def until(self, what, seconds=60):
        """Until these bytes came, behind those that were waited for before."""
        self.wait(lambda _: what in self.got[self.seen:], seconds)
        self.seen = self.got.index(what, self.seen) + len(what)

    def until_more(self, count, seconds=60):
        """Until so many bytes came behind those that were waited for."""
        self.wait(lambda _: len(self.got) - self.seen >= count, seconds)

    def stop(self):
        """Ctrl-C, from outside."""
        os.kill(self.process, signal.SIGINT)

    def is_alive(self):
        return os.waitpid(self.process, os.WNOHANG) == (0, 0)

    def end(self):
        """The status, after all that it still shows."""
        while data := self.read():
            self.got += data
            self.screen.feed(data)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


if __name__ == "__main__":
    terminal = Terminal(int(sys.argv[1]), sys.argv[2:])
    while data := terminal.read():
        sys.stdout.buffer.write(data)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(terminal.process, 0)[1]) & 255)
