#include "cli/prediction.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/core/resident_memory.h"

namespace mixtape::cli {

void Prediction::tell_memory(const CalibrationData& data) {
  const Device& device = tape_.device();
  MemoryUse use = o_.memory_use(std::ssize(data.train), device_count_);
  use.sampled_rows = o_.text.rows_at_a_time(opened_.config, device);
  use.sampled_length = o_.text.length;
  bytes_ = predicted_peak_bytes(opened_.config, plan_, compute_, use, device);
  // Beside the buffers, where they share the memory, the program and its text as they are now, and what is yet to come.
  if (device.caps().has_host_memory)
    bytes_ += static_cast<double>(peak_resident_bytes()) +
              predicted_host_bytes(opened_.config, mapped_bytes(find_model(o_.model.path)), use,
                                   device.caps().threads);
  print_fact("peak memory", "about {}", format_bytes(bytes_));
}

// A batch of training rows; random ones where the model has yet to write them.
std::vector<TokenRow> Prediction::timed_rows(const CalibrationData& data) const {
  const auto size = static_cast<std::size_t>(std::clamp<std::int64_t>(
      o_.dwq.train.batch_size, 1, std::max<std::int64_t>(1, std::ssize(data.train))));
  if (o_.text.is_sampled())
    return random_rows(size, static_cast<std::size_t>(o_.text.length), opened_.config.vocab_size,
                       o_.text.seed);
  return {data.train.begin(), data.train.begin() + static_cast<std::ptrdiff_t>(size)};
}

void Prediction::tell_time(const CausalLm& model, const CalibrationData& data) {
  pace_ =
      measure_pace(model, tape_, timed_rows(data), o_.text.rows_at_a_time(opened_.config, tape_.device()));
  WorkUse use = o_.work_use(data, device_count_);
  use.part_tokens = o_.part_tokens(opened_.config, plan_, data, tape_.device());
  use.part_tokens = std::min(use.part_tokens, use.validation_tokens);
  stages_ = expected_stages(opened_.config, plan_, use, pace_);
  print_fact("time", "about {}{}", format_seconds(Forecast(stages_).seconds()),
             o_.checkpoint.resume ? " from the start" : "");
}

void Prediction::tell_time(const CalibrationData& data) {
  try {
    const Teacher teacher(*opened_.source, compute_, true, tape_);
    tell_time(teacher.model(), data);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_supported) throw;
    print_fact("time", "not known: {}", error.what());
  }
}

// A step costs 8 operations for each weight that a token passes, the teacher's pass among them.
void Prediction::show_in(StageDisplay& display) const {
  display.expect(stages_, 8.0 * weights_per_token(opened_.config), pace_.product);
}

nlohmann::json Prediction::figures() const {
  return {{"predicted", {{"seconds", Forecast(stages_).seconds()}, {"peak_bytes", bytes_}}}};
}

}  // namespace mixtape::cli
