// The filters, tests, methods and functions that chat templates may call.
#pragma once

#include <string>

#include "mixtape/io/chat_template_value.h"

namespace mixtape::chat {

// Throw not_supported, naming what isn't known, and invalid_argument for arguments that don't fit.
Value apply_filter(const std::string& name, const Value& subject, const Arguments& arguments);
bool apply_test(const std::string& name, const Value& subject, const Arguments& arguments);
bool has_filter(const std::string& name);

// A method of a string, dict or list as a function, or an attribute of an object; Undefined if there is none of that
// name.
Value find_method(const Value& subject, const std::string& name);

// namespace, range, dict, joiner, cycler and raise_exception; Undefined for any other name.
Value find_function(const std::string& name);

// container[key] and container.key; Undefined if it isn't there.
Value find_item(const Value& container, const Value& key);

// The items of a dict as tuples (key, value).
List pairs_of(const Dict& dict);

// + - * / // % ** ~
Value apply_operator(const std::string& op, const Value& left, const Value& right);

}  // namespace mixtape::chat
