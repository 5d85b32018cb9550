"""typed.py MIXTAPE MODEL ANSWER: a chat's messages typed on a terminal, with every key that edits them. ANSWER: what MODEL
answers to 'Once upon a time'."""
import os
import sys
from on_terminal import Terminal

os.environ["TERM"] = "xterm"
mixtape, model, answer = sys.argv[1:]
command = [mixtape, "chat", "-m", model, "--temp", "0", "-n", "6", "--device", "cpu", "--dtype", "f32"]
LEFT, RIGHT, UP, DOWN, HOME, END, DELETE = ("\x1b[" + end for end in ("D", "C", "A", "B", "H", "F", "3~"))


def chat(columns=60):
    terminal = Terminal(columns, command)
    at_prompt(terminal)
    return terminal


def at_prompt(terminal):
    terminal.wait(lambda s: s.rows()[-1] == ">" and s.column == 2)


def shows(terminal, rows, row, column):
    """The last rows of the screen, and the cursor among them."""
    rows = rows.split("\n")

    def is_there(screen):
        first = len(screen.cells) - len(rows)
        return screen.rows()[-len(rows):] == rows and (screen.row - first, screen.column) == (row, column)
    terminal.wait(is_there)


def says(terminal, message, *, keys="\r"):
    """Ends the message; what is answered is the answer to 'Once upon a time', a new conversation's first."""
    terminal.type(keys)
    terminal.wait(lambda s: s.rows()[-1] == ">" and any(answer[:20] in row for row in s.rows()[-8:]))
    terminal.type("/clear\r")
    terminal.wait(lambda s: s.rows()[-2:] == ["> /clear", ">"])


terminal = chat()
# The keys that move and erase, one by one.
terminal.type("nce")
shows(terminal, "> nce", 0, 5)
terminal.type(LEFT + LEFT)
shows(terminal, "> nce", 0, 3)
terminal.type(HOME + "O")
shows(terminal, "> Once", 0, 3)
terminal.type("\x05 a time")
shows(terminal, "> Once a time", 0, 13)
terminal.type("\x1b[1;5D\x1bb\x1bb" + RIGHT * 4 + " upon")
shows(terminal, "> Once upon a time", 0, 11)
terminal.type("\x01\x01xy\x02\x02" + DELETE + "\x04")
shows(terminal, "> Once upon a time", 0, 2)
terminal.type("one two \x0b")
shows(terminal, "> one two", 0, 10)
terminal.type("\x17\x7f\x08")
shows(terminal, "> on", 0, 4)
terminal.type("\x15")
shows(terminal, ">", 0, 2)
terminal.type("Once upon a tame" + LEFT * 2 + "\x7fi" + "\x1bOF")
shows(terminal, "> Once upon a time", 0, 18)
says(terminal, "Once upon a time")

# What was said before: two back, one on, changed. An empty line and one that is said again are not kept.
terminal.type("\r")
terminal.wait(lambda s: s.rows()[-2:] == [">", ">"])
terminal.type("mine" + UP)
shows(terminal, "> /clear", 0, 8)
terminal.type(UP + UP + UP)
shows(terminal, "> Once upon a time", 0, 18)
terminal.type(DOWN + DOWN + DOWN)
shows(terminal, "> mine", 0, 6)
terminal.type("\x10\x10\x0e\x10")
shows(terminal, "> Once upon a time", 0, 18)
says(terminal, "Once upon a time")

# Letters of several bytes, of two columns, of several code points; a tab; bytes that are none.
terminal.type("a\u00e9\u732be\u0301b" + LEFT)
shows(terminal, "> a\u00e9\u732be\u0301b", 0, 7)
terminal.type(LEFT)
shows(terminal, "> a\u00e9\u732be\u0301b", 0, 6)
terminal.type(LEFT + LEFT)
shows(terminal, "> a\u00e9\u732be\u0301b", 0, 3)
terminal.type(RIGHT + "\x7f" + RIGHT + "\x7f")
shows(terminal, "> ae\u0301b", 0, 3)
terminal.type("\x15\x0b\t1")
shows(terminal, ">     1", 0, 7)
terminal.type(b"\x15\xe9\xff")
shows(terminal, "> \\xe9\\xff", 0, 10)
terminal.type("\r")
terminal.wait(lambda s: any("no valid UTF-8" in row for row in s.rows()) and s.rows()[-1] == ">")

# Rows: of a long line, of what is pasted, of a line that goes on; longer than the terminal's own lines may be.
terminal.type("x" * 100 + "\x01" + RIGHT)
shows(terminal, "> " + "x" * 57 + "\n" + "x" * 43, 0, 3)
terminal.type("\x05\u732b" + LEFT)
shows(terminal, "> " + "x" * 57 + "\n" + "x" * 43 + "\u732b", 1, 43)
terminal.type("\x03")
terminal.wait(lambda s: s.rows()[-1] == ">" and s.rows()[-2].endswith("\u732b^C"))
terminal.type("\x1b[200~Once\r\nupon \x1b[A\rthere\r\n\x1b[201~")
shows(terminal, "> Once\nupon \\x1b[A\nthere", 2, 5)
terminal.type(LEFT * 6)
shows(terminal, "> Once\nupon \\x1b[A\nthere", 1, 11)
terminal.type("\x03")
at_prompt(terminal)
terminal.type("\x1b[200~" + "Once \r" * 40 + "\x1b[201~")
terminal.wait(lambda s: s.rows() == ["Once"] * 24 and s.column == 5)
terminal.type("\x15Once upon\\\r")
terminal.wait(lambda s: s.rows()[-1] == ".")
terminal.type("\x03")
at_prompt(terminal)
terminal.type("x" * 5000 + "\x15Once upon a time")
shows(terminal, "> Once upon a time", 0, 18)
says(terminal, "Once upon a time")

# On a terminal that is resized the line stands as it would have been typed there, below what was there before.
before = terminal.screen.rows()[-3:-1]
terminal.type("x" * 50 + LEFT * 3)
shows(terminal, "> " + "x" * 50, 0, 49)
terminal.resize(30)
shows(terminal, "> " + "x" * 27 + "\n" + "x" * 23, 1, 20)
terminal.resize(21)
shows(terminal, "> " + "x" * 18 + "\n" + "x" * 20 + "\n" + "x" * 12, 2, 9)
terminal.type("yyy")
shows(terminal, "> " + "x" * 18 + "\n" + "x" * 20 + "\n" + "x" * 9 + "yyyxxx", 2, 12)
terminal.resize(60)
shows(terminal, "> " + "x" * 47 + "yyyxxx", 0, 52)
assert terminal.screen.rows()[-3:-1] == before, terminal.screen.rows()
terminal.type("\x15\x0b")
at_prompt(terminal)

# Ctrl-C drops what was typed; where nothing was it says how to leave, and then leaves. The terminal is as it was.
terminal.type("Once\x03")
terminal.wait(lambda s: s.rows()[-2:] == ["> Once^C", ">"])
terminal.type("\x03")
terminal.wait(lambda s: s.rows()[-3:] == ["> ^C", "[Ctrl-C again, Ctrl-D or /exit ends the chat]", ">"])
terminal.type("Once\x03")
terminal.wait(lambda s: s.rows()[-2:] == ["> Once^C", ">"])
terminal.type("\x03")
terminal.wait(lambda s: s.rows()[-2:] == ["[Ctrl-C again, Ctrl-D or /exit ends the chat]", ">"])
assert terminal.screen.modes == {"2004"}, terminal.screen.modes
terminal.type("\x03")
assert terminal.end() == -2, terminal.got
assert terminal.screen.modes == set(), terminal.screen.modes

# Ctrl-D ends an empty line alone, and so the chat.
terminal = chat(20)
terminal.type("Once\x01\x04")
shows(terminal, "> nce", 0, 2)
terminal.type("\x03")
at_prompt(terminal)
terminal.type("\x04")
assert terminal.end() == 0, terminal.got
os.environ["TERM"] = "dumb"
terminal = Terminal(60, command)
terminal.wait(lambda s: s.rows()[-1] == ">")
terminal.type("Once upon a time\n")
terminal.wait(lambda s: s.rows()[-1] == ">" and any(answer[:20] in row for row in s.rows()))
terminal.type("\x04")
assert terminal.end() == 0 and b"\x1b" not in terminal.got, terminal.got
