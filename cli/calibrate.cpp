// mixtape calibrate: the quantized copy of a model that is nearest to it.
#include "mixtape/calib/calibrate.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/calibrate_member.h"
#include "cli/calibrate_options.h"
#include "cli/calibration_html.h"
#include "cli/calibration_report.h"
#include "cli/checkpoint.h"
#include "cli/commands.h"
#include "cli/disk_space.h"
#include "cli/finite_weights.h"
#include "cli/group_table.h"
#include "cli/model_card.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/part_table.h"
#include "cli/prediction.h"
#include "cli/quote.h"
#include "cli/shared_run.h"
#include "cli/text_table.h"
#include "cli/training_hooks.h"
#include "mixtape/calib/fingerprint.h"
#include "mixtape/calib/importance.h"
#include "mixtape/calib/reference_recipe.h"
#include "mixtape/calib/student_tensors.h"
#include "mixtape/core/counted.h"
#include "mixtape/io/json_file.h"
#include "mixtape/quant/plan_file.h"

namespace mixtape::cli {
namespace {

class CalibrateRun {
 public:
  CalibrateRun(const CalibrateOptions& options, const std::optional<Launch>& launch)
      : o_(options),
        output_(o_.quantize.place(o_.model)),
        report_file_(o_.json_file, o_.inputs(), o_.quantize.out),
        page_file_(o_.html_file, o_.inputs(), o_.quantize.out, "--html"),
        plan_file_(o_.has_written_plan() ? "" : o_.quantize.saved_plan, o_.inputs(), o_.quantize.out,
                   "--save-plan"),
        imatrix_file_(o_.saved_imatrix, o_.inputs(), o_.quantize.out, "--save-imatrix"),
        devices_(open_devices(options.model.device, launch)),
        device_(devices_->devices()[0]),
        opened_(options.model.open()),
        tape_(device_),
        compute_(options.model.compute_dtype(opened_.config)),
        plan_(options.quantize.plan(opened_)),
        storage_(model_dtype(*opened_.source)),
        gguf_(o_.quantize.plan_gguf(opened_, plan_)) {
    if (imatrix_file_.wanted()) importance_.emplace(opened_.config, plan_);
    o_.settle(opened_.config, device_);
    if (o_.trains()) require_row_for_each(*devices_, o_.dwq.train.batch_size);
  }

  int run() {
    return run_as_first(devices_->processes(), checkpoint_, [this] { return work(); });
  }

 private:
  int work() {
    show_plan();
    const std::int64_t bytes = chooses_bits() ? o_.quantize.budget.bytes(opened_, plan_) : size().bytes;
    // Of a GGUF file, beside its tensors.
    const std::uint64_t rest =
        gguf_ ? gguf_->layout().file_bytes() - static_cast<std::uint64_t>(gguf_->tensor_bytes()) : 0;
    output_.require_space(rest + static_cast<std::uint64_t>(bytes), bytes_beside(*opened_.source));
    if (importance_) imatrix_file_.require_space(imatrix_bytes(importance_->imatrix));
    prepare();
    require_finite_floats(*opened_.source, plan_);
    if (o_.dry_run) return rehearse();
    tell_run(devices_->processes(), *checkpoint_);
    StageDisplay display;
    blaming_weights(*opened_.source, [&] { calibrate_student(display); });
    display.close();
    if (calibration_.report.stopped_early && !o_.write_on_interrupt)
      fail(ErrorCode::interrupted, "interrupted after ", counted(training().steps_done, "step"));
    write(display);
    checkpoint_->remove();
    report_then_tell({[this] { write_importance(); },
                      [this] { report_file_.write_model(report(), o_.quantize.out, seconds_); },
                      [this] { page_file_.write_page([this] { return page(); }); }},
                     [this] { print_outcome(); });
    return improved(calibration_.report) ? Status::ok : Status::not_improved;
  }

  // What can be wrong with the command line or the files is found before the teacher is loaded.
  void prepare() {
    const bool is_sampled = o_.text.is_sampled();
    sources_ = o_.text.file_sources(opened_.tokenizer, opened_.source->tokenizer_config_json(),
                                    opened_.config.vocab_size);
    if (is_sampled) {
      beginnings_ = o_.text.beginnings(opened_, sources_);
      std::vector<RowSource> expected = sources_;
      expected.push_back(o_.text.expected_source());
      o_.text.sample_only_used(std::move(expected));
    } else {
      split();
    }
    for (const Method& m : o_.methods()) {
      if (m.check) m.check(*opened_.source, data_);
    }
    // Rows to be sampled follow from the model.
    checkpoint_.emplace(o_.checkpoint, o_.quantize.out,
                        Checkpoint::Inputs{{"model", model_fingerprint(*opened_.source)},
                                           {"text", data_fingerprint(data_, sources_)},
                                           {"plan", text_fingerprint(plan_json(plan_).dump())},
                                           {"device", devices_->name()}});
  }

  // What is left to say where nothing is run: the data as they will be, memory and time.
  int rehearse() {
    if (o_.text.is_sampled()) {
      sources_.push_back(o_.text.expected_source());
      split();
    }
    prediction_.tell_memory(data_);
    prediction_.tell_time(data_);
    return Status::ok;
  }

  // Until the teacher is there a signal ends the program at once.
  void calibrate_student(StageDisplay& display) {
    RunHooks hooks = display.hooks(&*checkpoint_);
    hooks.should_stop = stops_first(devices_->processes());
    const CalibrationData expected = o_.text.is_sampled() ? o_.text.expected_data(sources_) : data_;
    prediction_.tell_memory(expected);
    const Teacher teacher(*opened_.source, compute_, o_.stream_teacher, tape_);
    prediction_.tell_time(teacher.model(), expected);
    prediction_.show_in(display);
    const Stopwatch watch;
    watch_interrupts();
    checkpoint_->begin();
    if (o_.text.is_sampled()) {
      sources_.push_back(o_.text.sampled_source(beginnings_, teacher.model(), tape_, hooks));
      split();
    }
    if (chooses_bits()) choose_bits(teacher, display, hooks);
    CalibrationOptions options{.methods = o_.methods(), .gate = !o_.reference_compat};
    options.evaluation_batch = o_.dwq.train.batch_size;
    options.statistics_rows = o_.statistics_rows;
    options.devices = devices_.get();
    bool is_visited = false;
    const auto add = [&](const LayerStatistics& layer) {
      is_visited = true;
      importance_->add(layer);
    };
    if (importance_) options.on_statistics = add;
    send_calibration(devices_->processes(), o_, plan_, data_);
    calibration_ = calibrate(teacher, plan_, data_, options, hooks);
    if (!calibration_.report.stopped_early) {
      const std::int64_t tokens = o_.part_tokens(opened_.config, plan_, data_, device_);
      parts_ = measured_parts(teacher, calibration_.student, plan_, storage_,
                              first_positions(data_.validation, tokens), options.evaluation_batch,
                              o_.write_on_interrupt, display.hooks());
    }
    seconds_ = watch.seconds();
    if (!importance_ || is_visited || calibration_.report.stopped_early) return;
    // A run that is gone on with after its fits gathers none.
    const auto rows = std::span(data_.train).first(static_cast<std::size_t>(visited_rows()));
    visit_input_statistics(teacher, plan_, rows, options.evaluation_batch, Statistics::importance,
                           display.hooks(), add);
  }

  std::int64_t visited_rows() const { return std::min(std::ssize(data_.train), o_.statistics_rows); }
  bool chooses_bits() const { return o_.quantize.budget.is_set(); }

  void choose_bits(const Teacher& teacher, StageDisplay& display, const RunHooks& hooks) {
    const std::int64_t bytes = o_.quantize.budget.bytes(opened_, plan_);
    losses_ = measure_sensitivity(teacher, plan_, data_, o_.sensitivity(), hooks);
    const CheckedPlan checked =
        checked_plan_within(teacher, plan_, losses_, data_, bytes, storage_, o_.sensitivity(), hooks);
    display.close();
    o_.quantize.budget.print(checked);
    plan_ = checked.plan;
    gguf_ = o_.quantize.plan_gguf(opened_, plan_);
    print_plan(opened_, plan_, gguf_ ? &*gguf_ : nullptr, false);
    write_plan();
  }

  void split() {
    const TextOptions& t = o_.text;
    print_fact("text", "{}", printable(t.describe()));
    data_ = o_.reference_compat ? reference_split(rows_of(std::move(sources_)), t.train_rows,
                                                  t.validation_rows, t.report_rows, t.seed)
                                : t.split(std::move(sources_));
    TrainOptions& train = o_.dwq.train;
    const auto found = static_cast<std::int64_t>(data_.train.size());
    if (o_.one_pass) train.steps = std::max<std::int64_t>(1, found / train.batch_size);
    t.print_parts(data_);
    if (o_.trains()) print_epochs(train, found);
  }

  void show_plan() {
    warn_if_beyond_context(opened_.config, o_.text.length);
    if (chooses_bits()) {
      o_.quantize.budget.print(opened_, plan_, o_.sensitivity());
    } else {
      print_plan(opened_, plan_, gguf_ ? &*gguf_ : nullptr, o_.dry_run);
      write_plan();
    }
  }

  // What the run that is gone on with wrote already stays.
  void write_plan() {
    const std::string& file = o_.quantize.saved_plan;
    if (!o_.has_written_plan()) return plan_file_.write(plan_json(plan_));
    if (read_json(file) != plan_json(plan_))
      fail(ErrorCode::io, "--save-plan: ", file, " holds another plan, expected a new name");
  }

  // After a stop the best state is still written whole; a second signal ends the program.
  void write(StageDisplay& display) {
    RunHooks hooks = display.hooks();
    if (o_.write_on_interrupt) hooks.should_stop = nullptr;
    if (gguf_) return write_gguf(display, hooks);
    output_.write([&](AtomicDirectory& directory) {
      write_card(directory.path(), o_.quantize.out, record());
      write_student(directory, *opened_.source, calibration_.student, plan_, storage_, hooks);
      display.close();
    });
  }

  void write_gguf(StageDisplay& display, const RunHooks& hooks) {
    output_.write_gguf([&](AtomicFile& file) {
      gguf_loss_ = write_gguf_model(file, *opened_.source, *gguf_, tensors_of(calibration_.student), hooks);
      display.close();
    });
  }

  void write_importance() {
    if (!importance_) return;
    Imatrix& imatrix = importance_->imatrix;
    imatrix.datasets = {o_.text.describe()};
    imatrix.chunk_size = o_.text.length;
    imatrix.chunk_count = visited_rows();
    imatrix_file_.write([&](AtomicFile& file) { write_imatrix(file, imatrix); });
  }

  const TrainReport& training() const { return calibration_.report.training; }

  void print_outcome() {
    const CalibrationReport& r = calibration_.report;
    output_.tell();
    print_loss(gguf_loss_);
    if (importance_) imatrix_file_.tell();
    print_experts(training());
    print_stages(r);
    print_table(r, bits_per_weight(), o_.dwq.train.keep_best, tape_.device());
    print_groups(data_.report_groups, r.initial, r.result ? &*r.result : nullptr);
    if (r.stopped_early) print_interrupted(training(), o_.quantize.out);
    print_course(training());
    if (parts_) print_worst(*parts_, plan_, storage_);
    print_verdict(r);
    print_next(o_.quantize.out, gguf_.has_value());
  }

  StorageSize size() const { return written_size(opened_, plan_, gguf_ ? &*gguf_ : nullptr); }
  double bits_per_weight() const { return size().bits_per_weight(); }

  // The settings, and the figures that are the same on every run.
  nlohmann::json record() const {
    nlohmann::json json = model_record("calibrate", o_.model.path, opened_.config, size(), plan_);
    json.update({{"settings", o_.settings()},
                 {"text", o_.text.record(data_)},
                 {"seed", o_.text.seed},
                 {"device", devices_->name()},
                 {"dtype", name(compute_)}});
    const CalibrationReport& r = calibration_.report;
    json.update(figures(r));
    json["groups"] = group_figures(data_.report_groups, r.initial, r.result ? &*r.result : nullptr);
    return json;
  }

  nlohmann::json report() const {
    nlohmann::json json = record();
    json.update(course(calibration_.report, tape_.device()));
    json.update(prediction_.figures());
    if (chooses_bits()) json["modules"] = module_figures(plan_, losses_);
    if (parts_) json["parts"] = part_figures(*parts_, plan_, storage_);
    return json;
  }

  std::string page() const {
    return CalibrationPage{
        o_.quantize.out, o_.model.path, version_record(), bits_per_weight(), calibration_.report,
        data_,           plan_,         storage_,         opened_.tokenizer, parts_ ? &*parts_ : nullptr}
        .html();
  }

  CalibrateOptions o_;
  ModelOutput output_;
  ReportFile report_file_;
  ReportFile page_file_;
  ReportFile plan_file_;
  FileOutput imatrix_file_;
  std::unique_ptr<DeviceGroup> devices_;
  Device device_;  // the first one: all but the steps of training is done there
  OpenedModel opened_;
  Tape tape_;
  DType compute_;
  QuantizationPlan plan_;
  DType storage_;
  std::optional<GgufPlan> gguf_;                // of plan_, where --out is a GGUF file
  std::optional<ImportanceRecord> importance_;  // of --save-imatrix
  std::vector<RowSource> sources_;              // until they are split
  Beginnings beginnings_;                       // of rows to be sampled
  CalibrationData data_;
  std::optional<Checkpoint> checkpoint_;
  std::vector<ModuleLosses> losses_;  // of the modules whose bits are chosen
  Calibration calibration_;
  std::optional<KlByPart> parts_;  // of --html
  GgufLoss gguf_loss_;             // nothing of a directory
  Prediction prediction_{o_, opened_, plan_, compute_, tape_, devices_->size()};
  double seconds_ = 0.0;  // of all stages
};

}  // namespace

void add_calibrate(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "Makes the quantized copy of a model that is nearest to it; also called dwq.");
  command->alias("dwq");
  auto o = std::make_shared<CalibrateOptions>();
  o->add(*command);
  command->footer(
      "Examples:\n"
      "  mixtape calibrate -m Qwen3-0.6B -o Qwen3-0.6B-3bit --bits 3 --text my_text.txt\n"
      "  mixtape calibrate -m Qwen3-0.6B -o out --recipe best --chats chats.jsonl\n"
      "  mixtape calibrate -m Qwen3-0.6B -o out --bpw 3.5 --text my_text.txt\n"
      "  mixtape calibrate -m Qwen3-0.6B -o out.gguf --type q4_k_m --text my_text.txt\n"
      "  mixtape calibrate -m Qwen3-0.6B -o out.gguf --bpw 4.5 --text my_text.txt\n"
      "  mixtape calibrate -m model.gguf -o model-3bit --bits 3 --data self --dry-run\n"
      "  torchrun --nproc-per-node 2 --no-python mixtape calibrate -m Qwen3-0.6B \\\n"
      "    -o out --text my_text.txt");
  command->callback([o, command, &status] {
    const std::optional<Launch> launch = launch_of_run();
    o->finish(*command, !is_member(launch));
    if (launch) o->checkpoint.processes = launch->size;
    status = is_member(launch) ? take_part_in_calibrate(*o, *launch) : CalibrateRun(*o, launch).run();
  });
}

}  // namespace mixtape::cli
