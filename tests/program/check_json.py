"""check_json.py SCHEMA FILE...: each file is what the schema says of the command that it names."""
import json
import sys

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
         "number": (int, float)}
KNOWN = {"$ref", "type", "const", "required", "properties", "additionalProperties", "items"}


def is_a(value, name):
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def check(value, wanted, all_of_it, at):
    """Raises AssertionError, naming the place, where `value` is not what the schema `wanted` says."""
    assert set(wanted) <= KNOWN, (at, set(wanted) - KNOWN)
    if "$ref" in wanted:
        return check(value, all_of_it["$defs"][wanted["$ref"].removeprefix("#/$defs/")], all_of_it, at)
    if "const" in wanted:
        assert value == wanted["const"], f"{at} is {value!r}, expected {wanted['const']!r}"
    if "type" in wanted:
        names = wanted["type"] if isinstance(wanted["type"], list) else [wanted["type"]]
        assert any(is_a(value, name) for name in names), f"{at} is {value!r}, expected {' or '.join(names)}"
    if isinstance(value, dict):
        for name in wanted.get("required", []):
            assert name in value, f"{at} lacks {name}"
        named, others = wanted.get("properties", {}), wanted.get("additionalProperties", {})
        for name, member in value.items():
            assert name in named or others is not False, f"{at} has {name}, which the schema doesn't know"
            check(member, named.get(name, others), all_of_it, f"{at}.{name}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            check(item, wanted.get("items", {}), all_of_it, f"{at}[{i}]")


schema = json.load(open(sys.argv[1]))
failed = False
for file in sys.argv[2:]:
    try:
        report = json.load(open(file))
        assert {"$ref": f"#/$defs/{report['command']}"} in schema["oneOf"], report["command"]
        check(report, schema["$defs"][report["command"]], schema, file)
    except (AssertionError, KeyError, ValueError) as error:
        print(f"{file}: {error}")
        failed = True
sys.exit(failed)
