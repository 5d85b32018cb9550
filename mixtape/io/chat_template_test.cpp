#include "mixtape/io/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/text.h"

namespace mixtape {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

const std::string kData = "tests/data/chat_template/";
const ordered_json kHello = {{{"role", "user"}, {"content", "hello"}}};

std::string render(const std::string& source, const ChatOptions& options = {}) {
  return ChatTemplate(source).render(kHello.dump(), options);
}

// The error that parsing and rendering throws.
Error error_of(const std::string& source) {
  try {
    render(source);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << source << " gave no error";
  return Error(ErrorCode::device, "");
}

const ordered_json& vectors() {
  static const ordered_json file = ordered_json::parse(read_utf8_file(kData + "cases.json"));
  return file;
}

// Rendered must equal `expected`, or be refused if that is null.
void check(const std::string& source, const ordered_json& messages, const ChatOptions& options,
           const ordered_json& expected) {
  ordered_json rendered;
  try {
    rendered = ChatTemplate(source, vectors()["tokens"].get<std::map<std::string, std::string>>())
                   .render(messages.dump(), options);
  } catch (const Error&) {
  }
  EXPECT_EQ(rendered, expected) << source;
}

// Made by tests/data/chat_template/make_vectors.py with the reference program.
TEST(ChatTemplate, ReferenceTemplates) {
  for (const ordered_json& c : vectors()["files"]) {
    SCOPED_TRACE(c.dump());
    ChatOptions options;
    options.add_generation_prompt = c["prompt"];
    options.variables = ordered_json{{"enable_thinking", c["thinking"]}}.dump();
    if (c["tools"]) options.tools = vectors()["tools"].dump();
    check(read_utf8_file(kData + c["file"].get<std::string>()),
          vectors()["chats"][c["chat"].get<std::size_t>()], options, c["rendered"]);
  }
}

TEST(ChatTemplate, ReferenceSnippets) {
  ChatOptions options;
  options.tools = vectors()["tools"].dump();
  options.variables = vectors()["values"].dump();
  for (const ordered_json& c : vectors()["snippets"]) {
    check(c["template"].get<std::string>(), vectors()["chats"][2], options, c["rendered"]);
  }
}

TEST(ChatTemplate, RefusalOfTheTemplateItself) {
  const Error error = error_of("\n{{ raise_exception('no ' ~ messages[0].role) }}");
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(error.what(), "chat template, line 2: no user");
}

TEST(ChatTemplate, UnknownConstructsAreNamed) {
  for (const auto& [source, name] : {std::pair{"{% include 'x' %}", "tag include"},
                                     {"{{ 1 | frobnicate }}", "filter frobnicate"},
                                     {"{{ 1 is frobnicated }}", "test frobnicated"},
                                     {"{% block b %}{% endblock %}", "tag block"}}) {
    const Error error = error_of(source);
    EXPECT_EQ(error.code(), ErrorCode::not_supported) << source;
    EXPECT_THAT(error.what(), HasSubstr(name));
    EXPECT_THAT(error.what(), HasSubstr("line 1"));
  }
}

TEST(ChatTemplate, SyntaxErrorsNameTheLine) {
  for (const char* source :
       {"\n{% if true %}", "\n{% endif %}", "\n{{ 1 + }}", "\n{{ 'a }}", "\n{{ (1 }}", "\n{{ 1", "\n{# x",
        "\n{% for x %}{% endfor %}", "\n{% set x %}", "\n{% break %}", "\n{{ ? }}", "\n{{ '\\uD800' }}",
        "\n{{ 99999999999999999999 }}", "\n{% if 1 %}{% endfor %}"}) {
    const Error error = error_of(source);
    EXPECT_EQ(error.code(), ErrorCode::format) << source;
    EXPECT_THAT(error.what(), HasSubstr("line 2")) << source;
  }
}

TEST(ChatTemplate, WrongKindsAreErrors) {
  for (const auto& [source, words] : {std::pair{"{{ nope.x }}", "nope is undefined"},
                                      {"{{ messages[0].role.nope() }}", "nope is an undefined value"},
                                      {"{{ 'a' + 1 }}", "cannot apply + to a string and an integer"},
                                      {"{{ 1 // 0 }}", "division by zero"},
                                      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
                                      {"{{ 'a' | trim(1, 2) }}", "at most 1"},
                                      {"{{ [1][::0] }}", "step"},
                                      {"{% set a, b = [1] %}", "1 values to 2 names"},
                                      {"{% set messages.x = 1 %}", "no namespace"},
                                      {"{{ range(1000000) }}", "100000"},
                                      {"{{ 'abcdefgh' * 1000000000 }}", "too large"},
                                      {"{{ 1 < 'a' }}", "cannot order"}}) {
    const Error error = error_of(source);
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << source;
    EXPECT_THAT(error.what(), HasSubstr(words)) << source;
  }
}

TEST(ChatTemplate, DeepNestingIsAnError) {
  const std::string deep(100'000, '(');
  EXPECT_EQ(error_of("{{ " + deep + " }}").code(), ErrorCode::format);
  std::string sum = "{{ 1", ifs, elifs = "{% if 0 %}", minus = "{{ ", dots = "{{ messages";
  for (int i = 0; i < 100'000; ++i) {
    sum += "+1";
    ifs += "{% if 1 %}";
    elifs += "{% elif 0 %}";
    minus += "- ";
    dots += "[0]";
  }
  for (const std::string& source : {sum + " }}", ifs, elifs, minus + "1 }}", dots + " }}"}) {
    EXPECT_EQ(error_of(source).code(), ErrorCode::format);
  }
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").what(), HasSubstr("deep"));
}

TEST(ChatTemplate, FixedDateUnlessGiven) {
  const std::string source = "{{ strftime_now('%d %b %Y') if strftime_now is defined else 'never' }}";
  EXPECT_EQ(render(source), "26 Jul 2024");
  ChatOptions options;
  options.now = std::chrono::sys_days(std::chrono::year(2025) / 3 / 1);
  EXPECT_EQ(render(source, options), "01 Mar 2025");
  EXPECT_TRUE(ChatTemplate(source).uses_date());
  EXPECT_FALSE(ChatTemplate("{{ now }}").uses_date());
}

TEST(ChatTemplate, WhatIsNoJsonIsNamed) {
  const auto refusal = [](const char* messages, const char* tools) -> std::string {
    ChatOptions options;
    options.tools = tools;
    try {
      return ChatTemplate("x").render(messages, options);
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal("[", ""), HasSubstr("chat template: messages: invalid JSON"));
  EXPECT_THAT(refusal("[]", "[1"), HasSubstr("chat template: tools: invalid JSON"));
  EXPECT_THAT(refusal("{}", ""), HasSubstr("messages must be an array"));
  EXPECT_THAT(refusal("", ""), HasSubstr("messages must be an array"));
  EXPECT_EQ(refusal("[]", "[1]"), "x");
}

TEST(ChatTemplate, FromConfig) {
  EXPECT_FALSE(ChatTemplate::from_config(json::object()).has_value());
  const json config = {{"chat_template", "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"},
                       {"bos_token", "<b>"},
                       {"eos_token", {{"content", "<e>"}}},
                       {"pad_token", nullptr}};
  EXPECT_EQ(ChatTemplate::from_config(config)->render(kHello.dump()), "<b><e>False");
  EXPECT_THROW(ChatTemplate::from_config({{"chat_template", 3}}), Error);
}

TEST(ChatTemplate, NamedTemplates) {
  const json plain = {{"name", "default"}, {"template", "d"}},
             tools = {{"name", "tool_use"}, {"template", "t"}},
             other = {{"name", "rag"}, {"template", "{% unknown %}"}};
  ChatOptions with_tools;
  with_tools.tools = "[]";
  const auto rendered = [&](const json& list, const ChatOptions& options) {
    return ChatTemplate::from_config({{"chat_template", list}})->render(kHello.dump(), options);
  };
  EXPECT_EQ(rendered(json::array({other, tools, plain}), {}), "d");
  EXPECT_EQ(rendered(json::array({other, tools, plain}), with_tools), "t");
  EXPECT_EQ(rendered(json::array({plain}), with_tools), "d");
  EXPECT_EQ(rendered(json::array({tools}), with_tools), "t");
  EXPECT_THROW(rendered(json::array({tools}), {}), Error);
  EXPECT_THROW(rendered(json::array({other}), {}), Error);
}

}  // namespace
}  // namespace mixtape
