#include "cli/loaded_model.h"

#include <ctime>

#include "cli/text_options.h"
#include "mixtape/io/tokenizer_files.h"

namespace mixtape::cli {

LoadedModel::LoadedModel(const ModelOptions& options, const Device& device)
    : opened_(options.open()),
      stop_(stop_ids(*opened_.source, opened_.tokenizer)),
      tape_(device),
      dtype_(options.compute_dtype(opened_.config)),
      parameters_(load_parameters(*opened_.source, opened_.config, dtype_, device, Blocks::kept)),
      weights_(tape_, parameters_, Trainable::nothing),
      model_(opened_.config, weights_, dtype_) {}

std::chrono::sys_seconds today(const std::string& date) {
  if (!date.empty()) return parse_date(date);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return std::chrono::sys_seconds(std::chrono::seconds(now + local.tm_gmtoff));
}

}  // namespace mixtape::cli
