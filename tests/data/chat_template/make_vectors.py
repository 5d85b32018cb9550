#!/usr/bin/env python3
"""Writes cases.json: templates, what they are given, and what the reference (PyPI: jinja2, version 3.1.6, set up as the
reference library does) makes of them; null where it refuses. Usage: make_vectors.py > cases.json"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("marked"), [], [], body).set_lineno(line)

    def marked(self, caller):
        return caller()


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refuse(message):
    raise jinja2.TemplateError(message)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                            extensions=[jinja2.ext.loopcontrols, Generation])
environment.filters["tojson"] = to_json
environment.globals["raise_exception"] = refuse
environment.globals["strftime_now"] = datetime.datetime(2024, 7, 26).strftime

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Looks outside: \"now\" & <here>",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                         "required": ["city"]}}}]
CHATS = [
    [{"role": "user", "content": "Hello, wörld! "}],
    [{"role": "system", "content": "  Be brief.\n"}, {"role": "user", "content": "What is 2 + 2?"},
     {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n4"}, {"role": "user", "content": "And 3 + 3?"}],
    [{"role": "user", "content": "Weather in Bern?"},
     {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments":
                                                          {"city": "Bern", "days": 2, "exact": True, "unit": None}}}]},
     {"role": "tool", "content": "{\"rain\": 0.5}"}, {"role": "tool", "content": "{\"wind\": 3}"},
     {"role": "assistant", "content": "Rain.", "reasoning_content": "\nLook at it.\n"}, {"role": "user", "content": "日本語 👍"}],
    [{"role": "assistant", "content": "I come first."}, {"role": "assistant", "content": "Again."}],
]
VALUES = {"n": 5, "minus": -7, "f": 2.5, "s": "Hello wörld foo", "l": [3, 1, 2], "d": {"b": 1, "a": {"c": [1, 2]}},
          "empty": [], "u": "日本語👍x", "yes": True, "nothing": None, "pairs": [["a", 1], ["b", 2]],
          "names": ["Bob", "alice", "bob"]}


def render(template, chat, tools, variables, prompt):
    names = dict(TOKENS, messages=CHATS[chat], tools=TOOLS if tools else None, documents=None,
                 add_generation_prompt=prompt, **variables)
    try:
        return environment.from_string(template).render(**names)
    except (jinja2.TemplateError, TypeError, ValueError, ZeroDivisionError, LookupError, OverflowError):
        return None


files, snippets = [], []
for path in sorted(HERE.glob("*.jinja")):
    for chat in range(len(CHATS)):
        for tools, prompt, thinking in ((False, True, True), (True, True, False), (True, False, True)):
            rendered = render(path.read_text(), chat, tools, {"enable_thinking": thinking}, prompt)
            files.append({"file": path.name, "chat": chat, "tools": tools, "prompt": prompt, "thinking": thinking,
                          "rendered": rendered})
for line in (HERE / "snippets.txt").read_text().splitlines():
    template = line[1:].replace("\\n", "\n") if line.startswith("!") else line
    snippets.append({"template": template, "rendered": render(template, 2, True, VALUES, False)})
everything = {"tokens": TOKENS, "tools": TOOLS, "chats": CHATS, "values": VALUES}
print("{")
for key, value in everything.items():
    print(json.dumps(key) + ":" + json.dumps(value, separators=(",", ":")) + ",")
for key, cases in (("files", files), ("snippets", snippets)):
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    print(json.dumps(key) + ":[\n" + lines + "\n]" + ("," if key == "files" else ""))
print("}")
