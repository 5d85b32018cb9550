// The functions that chat templates may call, methods of dicts and lists, and what x.y and x[y] find.
#include "mixtape/io/chat_template_builtins.h"

#include <algorithm>
#include <map>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_strings.h"

namespace mixtape::chat {
namespace {

constexpr std::int64_t kMaxRange = 100000;

using SequenceKind = Sequence::Kind;

Value call_range(const Arguments& arguments) {
  const List bound = arguments.bind({"start", "stop", "step"}, "range");
  const bool one = bound[1].is_undefined();
  const std::int64_t start = one ? 0 : bound[0].integer();
  const std::int64_t stop = one ? bound[0].integer() : bound[1].integer();
  const std::int64_t step = bound[2].is_undefined() ? 1 : bound[2].integer();
  require(step != 0, "range: the step is 0");
  List out;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    require(out.size() < kMaxRange, "range: more than ", kMaxRange, " numbers");
    out.emplace_back(i);
  }
  return Sequence{SequenceKind::range, std::move(out),
                  str("range(", start, ", ", stop, step == 1 ? "" : str(", ", step), ")")};
}

// dict(pairs or another dict, name=value, ...)
Dict call_dict(const Arguments& arguments) {
  require(arguments.positional.size() < 2, "dict takes at most 1 argument, found ",
          arguments.positional.size());
  Dict out;
  if (!arguments.positional.empty() && arguments.positional[0].dict()) {
    out = *arguments.positional[0].dict();
  } else if (!arguments.positional.empty()) {
    for (const Value& pair : arguments.positional[0].items()) {
      const List two = pair.items();
      require(two.size() == 2, "dict: an item has ", two.size(), " values, expected 2");
      out.set(two[0], two[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) out.set(name, value);
  return out;
}

Value call_raise(const Arguments& arguments) {
  const List bound = arguments.bind({"message"}, "raise_exception");
  fail(ErrorCode::invalid_argument, bound[0].text());
}

// joiner(sep)(): nothing the first time, then `sep`.
Value call_joiner(const Arguments& arguments) {
  const List bound = arguments.bind({"sep"}, "joiner");
  const std::string separator = bound[0].is_undefined() ? ", " : bound[0].text();
  const auto used = std::make_shared<bool>(false);
  return Function([separator, used](const Arguments&) {
    const bool again = *used;
    *used = true;
    return Value(again ? separator : "");
  });
}

// cycler(a, b, ...): next(), reset(), current
Value call_cycler(const Arguments& arguments) {
  require(!arguments.positional.empty(), "cycler needs a value");
  const auto at = std::make_shared<std::size_t>(0);
  const auto attribute = [items = arguments.positional, at](const std::string& name) -> Value {
    if (name == "current") return items[*at];
    if (name == "next") {
      return Function([items, at](const Arguments&) {
        Value item = items[*at];
        *at = (*at + 1) % items.size();
        return item;
      });
    }
    if (name != "reset") return Undefined{name};
    return Function([at](const Arguments&) {
      *at = 0;
      return Value(None{});
    });
  };
  return Object{attribute, {}};
}

Value dict_get(const Dict& dict, const Arguments& arguments) {
  const List bound = arguments.bind({"key", "default"}, "get");
  const Value* found = dict.find(bound[0]);
  if (found) return *found;
  return bound[1].is_undefined() ? Value(None{}) : bound[1];
}

Value dict_values(const Dict& dict) {
  List out;
  for (const auto& entry : dict.entries) out.push_back(entry.second);
  return Sequence{SequenceKind::view, std::move(out), "dict_values"};
}

Value dict_method(const Value& subject, const std::string& name) {
  if (name == "items")
    return Function([subject](const Arguments&) {
      return Sequence{SequenceKind::view, pairs_of(*subject.dict()), "dict_items"};
    });
  if (name == "keys")
    return Function([subject](const Arguments&) {
      return Sequence{SequenceKind::view, subject.items(), "dict_keys"};
    });
  if (name == "get") return Function([subject](const Arguments& a) { return dict_get(*subject.dict(), a); });
  if (name == "copy") return Function([subject](const Arguments&) { return subject; });
  if (name != "values") return {};
  return Function([subject](const Arguments&) { return dict_values(*subject.dict()); });
}

Value list_index(const List& list, const Arguments& arguments) {
  const Value sought = arguments.bind({"value"}, "index")[0];
  const auto at =
      std::find_if(list.begin(), list.end(), [&](const Value& item) { return equal(item, sought); });
  require(at != list.end(), "index: the list has no such item");
  return Value::count(static_cast<std::size_t>(at - list.begin()));
}

Value list_count(const List& list, const Arguments& arguments) {
  const Value sought = arguments.bind({"value"}, "count")[0];
  const auto same = [&](const Value& item) { return equal(item, sought); };
  return Value::count(static_cast<std::size_t>(std::count_if(list.begin(), list.end(), same)));
}

Value list_method(const Value& subject, const std::string& name) {
  if (name == "index")
    return Function([subject](const Arguments& a) { return list_index(*subject.list(), a); });
  if (name == "count")
    return Function([subject](const Arguments& a) { return list_count(*subject.list(), a); });
  if (name != "copy") return {};
  return Function([subject](const Arguments&) { return subject; });
}

Value item_at(const List& all, std::int64_t index, const Value& key) {
  const auto size = static_cast<std::int64_t>(all.size());
  const std::int64_t at = index < 0 ? index + size : index;
  return at >= 0 && at < size ? all[static_cast<std::size_t>(at)] : Value(Undefined{key.text()});
}

}  // namespace

List pairs_of(const Dict& dict) {
  List out;
  for (const auto& [key, value] : dict.entries)
    out.emplace_back(Sequence{SequenceKind::tuple, {key, value}, ""});
  return out;
}

Value find_method(const Value& subject, const std::string& name) {
  if (subject.string()) return string_method(subject, name);
  if (subject.object()) return subject.object()->attribute(name);
  const Sequence* sequence = subject.sequence();
  if (sequence && (sequence->kind == SequenceKind::list || sequence->kind == SequenceKind::tuple))
    return list_method(subject, name);
  return subject.dict() && !subject.mutable_namespace() ? dict_method(subject, name) : Value();
}

Value find_function(const std::string& name) {
  if (name == "range") return Function(call_range);
  if (name == "dict") return Function([](const Arguments& a) { return Value(call_dict(a)); });
  if (name == "namespace")
    return Function([](const Arguments& a) { return Value::make_namespace(call_dict(a)); });
  if (name == "raise_exception") return Function(call_raise);
  if (name == "joiner") return Function(call_joiner);
  if (name == "cycler") return Function(call_cycler);
  return {};
}

Value find_item(const Value& container, const Value& key) {
  if (container.dict()) {
    const Value* found = container.dict()->find(key);
    return found ? *found : Value(Undefined{key.text()});
  }
  const Sequence* sequence = container.sequence();
  if (sequence && sequence->kind == SequenceKind::group && key.string()) {
    if (*key.string() == "grouper") return sequence->items[0];
    if (*key.string() == "list") return sequence->items[1];
  }
  const bool indexed = container.string() || (sequence && sequence->kind != SequenceKind::view &&
                                              sequence->kind != SequenceKind::generator);
  if (!indexed || !(key.is_integer() || key.is<bool>())) return Undefined{key.text()};
  Value found = item_at(container.items(), key.integer(), key);
  return container.is_markup() && found.string() ? Value(Markup{*found.string()}) : found;
}

}  // namespace mixtape::chat
