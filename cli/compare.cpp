// mixtape compare: several students of one teacher in one table.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/commands.h"
#include "cli/evaluation_table.h"
#include "cli/evaluator.h"
#include "cli/html_page.h"
#include "cli/json_report.h"
#include "cli/model_card.h"
#include "cli/model_path.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/quote.h"
#include "cli/stored_forms.h"
#include "cli/svg_chart.h"
#include "cli/text_table.h"

namespace mixtape::cli {
namespace {

struct CompareOptions {
  ModelOptions model;  // without its path
  std::vector<std::string> students;
  EvaluatorOptions evaluator;
  std::string json_file, html_file;

  void finish(const CLI::App& command) {
    require(students.size() > 1, "compare: found ", students.size(), " model, expected two or more");
    require(!evaluator.teacher.empty() || !evaluator.base.empty(),
            "compare: found no teacher, expected --teacher or --base");
    evaluator.finish(command);
    refuse_same_place({{"--json", json_file}, {"--html", html_file}});
  }
  std::vector<std::string> inputs() const {
    std::vector<std::string> all = evaluator.inputs();
    all.insert(all.end(), students.begin(), students.end());
    return all;
  }
};

struct Candidate {
  std::string name;
  std::unique_ptr<ModelSource> source;
  StoredForm size;
  Evaluation evaluation = {};
};

std::vector<Candidate> open_students(const std::vector<std::string>& names, std::int64_t wanted_vocab_size) {
  std::vector<Candidate> students;
  for (const std::string& name : names) {
    const std::filesystem::path path = find_model(name);
    auto source = open_model(path);
    const std::int64_t vocab_size = source->config().vocab_size;
    require(vocab_size == wanted_vocab_size, source->where(), ": found a vocabulary of ", vocab_size,
            " tokens, expected ", wanted_vocab_size, " as in ", names[0]);
    const StoredForm size = total(stored_forms(*source, path));
    students.push_back({name, std::move(source), size});
  }
  return students;
}

// From the closest to its teacher to the farthest.
std::vector<std::size_t> ranking(const std::vector<Candidate>& students) {
  std::vector<std::size_t> order(students.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return students[a].evaluation.kl->mean < students[b].evaluation.kl->mean;
  });
  return order;
}

// By how much the closest leads, and whether that is more than chance.
struct Lead {
  Estimate kl;
  bool is_none() const { return kl.value == 0.0 && kl.error == 0.0; }
  bool is_sure() const { return kl.value > 2.0 * kl.error; }
};
Lead lead_of(const std::vector<Candidate>& students, const std::vector<std::size_t>& order) {
  return {kl_difference(students[order[0]].evaluation, students[order[1]].evaluation)};
}

// "3: KL lower by 0.00012 +-0.00001 than that of 2"
std::string told_closest(const std::vector<Candidate>& students, const std::vector<std::size_t>& order) {
  const Lead lead = lead_of(students, order);
  if (lead.is_none())
    return fmt::format("{} and {}, which are equal on this text", order[0] + 1, order[1] + 1);
  return fmt::format("{}{}: KL lower by {:.5f} +-{:.5f} than that of {}{}", order[0] + 1,
                     lead.is_sure() ? "" : ", maybe", lead.kl.value, lead.kl.error, order[1] + 1,
                     lead.is_sure() ? "" : "; more text would tell");
}

// Its name in a table, of the closest with a word of that.
std::string named(const std::vector<Candidate>& students, const std::vector<std::size_t>& order,
                  std::size_t i) {
  const Lead lead = lead_of(students, order);
  const bool is_closest = i == order[0] && !lead.is_none();
  return students[i].name + (!is_closest ? "" : lead.is_sure() ? " (closest)" : " (closest, maybe)");
}

void print_table(const std::vector<Candidate>& students, const std::vector<std::size_t>& order) {
  const Evaluation& first = students[0].evaluation;
  fmt::print("\n{:<4}{:>10}{:>7}  {}\n", "", "size", "bits", "model");
  for (std::size_t i = 0; i < students.size(); ++i) {
    const Candidate& s = students[i];
    fmt::print("{:<4}{:>10}{:>7.3f}  {}\n", i + 1, format_bytes(s.size.bytes), s.size.bits_per_weight(),
               printable(named(students, order, i)));
  }
  fmt::print("\n");
  const TextTable table({{"", 7},
                         {"ppl", 15},
                         {"KL mean", 18},
                         {"KL p99", 8},
                         {"same top 1 %", 13},
                         {"KL minus that of 1", 19}});
  table.print_header();
  table.print_row({"teacher", short_perplexity(first.teacher_perplexity, first.teacher_perplexity_error), "",
                   "", "", ""});
  for (std::size_t i = 0; i < students.size(); ++i) {
    const Evaluation& e = students[i].evaluation;
    const Estimate beside = kl_difference(first, e);
    table.print_row({std::to_string(i + 1), short_perplexity(e.perplexity, e.perplexity_error),
                     with_error(e.kl->mean, e.kl->mean_error, 5), fmt::format("{:.4f}", e.kl->p99),
                     with_error(100.0 * e.top1_agreement, 100.0 * e.top1_error, 2),
                     i == 0 ? "" : fmt::format("{:+.5f} +-{:.5f}", beside.value, beside.error)});
  }
}

// Whether no other is both smaller and closer, or as good in one and better in the other.
bool is_on_frontier(const std::vector<Candidate>& students, const Candidate& s) {
  return std::none_of(students.begin(), students.end(), [&](const Candidate& other) {
    const double kl = s.evaluation.kl->mean, others = other.evaluation.kl->mean;
    return other.size.bytes <= s.size.bytes && others <= kl &&
           (other.size.bytes < s.size.bytes || others < kl);
  });
}

nlohmann::json report_of(const std::vector<Candidate>& students, const std::vector<std::size_t>& order) {
  nlohmann::json models = nlohmann::json::array();
  for (const Candidate& s : students) {
    nlohmann::json entry = model_json(s.name, s.source->config());
    entry.update(size_json(s.size.bytes, s.size.weights));
    entry.update({{"result", to_json(s.evaluation)},
                  {"kl_minus_first", to_json(kl_difference(students[0].evaluation, s.evaluation))},
                  {"on_frontier", is_on_frontier(students, s)}});
    models.push_back(std::move(entry));
  }
  return {{"models", models}, {"closest", students[order[0]].name}};
}

std::string page_of(const std::vector<Candidate>& students, const std::vector<std::size_t>& order,
                    const Evaluator& evaluator) {
  HtmlPage page("Students of one teacher", fmt::format("compared by mixtape {}", version_record()));
  page.paragraph("Teacher: " + evaluator.told_teacher());
  page.paragraph("Text: " + evaluator.told_text());
  page.paragraph("Closest, numbered as below: " + told_closest(students, order));
  std::vector<Mark> marks;
  std::vector<std::vector<std::string>> rows = {{"", "model", "size", "bits", "KL mean", "KL minus that of 1",
                                                 "perplexity", "KL p99", "same top token"}};
  for (std::size_t i = 0; i < students.size(); ++i) {
    const Candidate& s = students[i];
    const Evaluation& e = s.evaluation;
    const Estimate beside = kl_difference(students[0].evaluation, e);
    const bool is_best = is_on_frontier(students, s);
    marks.push_back({s.name, s.size.bytes / 1e6, e.kl->mean, e.kl->mean_error, is_best});
    rows.push_back({std::to_string(i + 1) + (is_best ? "*" : ""), named(students, order, i),
                    format_bytes(s.size.bytes), fmt::format("{:.3f}", s.size.bits_per_weight()),
                    with_error(e.kl->mean, e.kl->mean_error, digits_of(e.kl->mean)),
                    with_error(beside.value, beside.error, 5),
                    short_perplexity(e.perplexity, e.perplexity_error), fmt::format("{:.4f}", e.kl->p99),
                    with_error(100.0 * e.top1_agreement, 100.0 * e.top1_error, 2) + " %"});
  }
  page.heading("KL over size");
  page.chart(
      mark_chart({.x = "MB", .y = "KL to the teacher", .x_ticks = {}, .is_log_y = true}, marks),
      "Nearer to the lower left is better: closer to the teacher, and smaller. The line leads through those "
      "(*) that no other beats in both; it is drawn by the means, whatever their errors.");
  page.table(rows);
  page.paragraph(fmt::format(
      "Sizes are those of the weights as they are stored, with their scales; bits are those of "
      "each weight, all matrices and norms together. KL is over {} positions, full vocabulary, "
      "temperature 1. +- is the standard error; of the difference to the first, that of the pairs.",
      students[0].evaluation.positions));
  return page.text();
}

void run_compare(const CompareOptions& o) {
  ReportFile report(o.json_file, o.inputs()), page(o.html_file, o.inputs(), "", "--html");
  const Device device = open_device(o.model.device);
  ModelOptions first = o.model;
  first.path = o.students[0];
  const OpenedModel opened = first.open();
  std::vector<Candidate> students = open_students(o.students, opened.config.vocab_size);
  std::vector<const ModelSource*> models;
  for (const Candidate& c : students) models.push_back(c.source.get());
  Evaluator evaluator(o.evaluator, first, opened, models, device);
  StageDisplay display;
  for (std::size_t i = 0; i < students.size(); ++i)
    students[i].evaluation =
        evaluator.measure(*students[i].source, fmt::format("evaluating {}", i + 1), display);
  display.close();
  const std::vector<std::size_t> order = ranking(students);
  nlohmann::json json = report_head("compare");
  json.update(evaluator.record());
  json.update(report_of(students, order));
  report_then_tell({[&] { report.write(json); },
                    [&] { page.write_page([&] { return page_of(students, order, evaluator); }); }},
                   [&] {
                     print_table(students, order);
                     fmt::print("\n");
                     print_words("closest  " + told_closest(students, order), 9);
                   });
}

}  // namespace

void add_compare(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("compare", "Several students of one teacher in one table.");
  auto o = std::make_shared<CompareOptions>();
  OptionGroup(*command, "Model")
      .paths("-m,--model,model", o->students, "MODEL", "A student; two or more, all of one vocabulary")
      ->required();
  o->model.add_device(*command);
  o->model.add_dtype(*command);
  o->evaluator.add(*command);
  OptionGroup report(*command, "Report");
  report.path("--json", o->json_file, "FILE", kJsonHelp);
  report.path("--html", o->html_file, "FILE", kHtmlHelp);
  command->footer(
      "Examples:\n"
      "  mixtape compare Qwen3-3bit Qwen3-4bit --teacher Qwen3-0.6B --text wiki.txt\n"
      "  mixtape compare a.gguf b.gguf c.gguf --base wiki.base --json -");
  command->callback([o, command] {
    o->finish(*command);
    run_compare(*o);
  });
}

}  // namespace mixtape::cli
