#include "mixtape/calib/train_state.h"

#include <nlohmann/json.hpp>

#include "mixtape/calib/state_file.h"
#include "mixtape/io/json_file.h"

namespace mixtape {
namespace {

constexpr const char* kFormat = "mixtape train state 1";

}  // namespace

Json to_json(const TrainReport& r) {
  Json validation = Json::array(), experts = Json::object();
  for (const ValidationPoint& p : r.validation) validation.push_back({p.step, p.loss});
  for (const auto& [layer, tokens] : r.expert_tokens) experts[std::to_string(layer)] = tokens;
  return {{"steps_done", r.steps_done},
          {"tokens_seen", r.tokens_seen},
          {"learning_rate", r.learning_rate},
          {"seconds", r.seconds},
          {"losses", r.losses},
          {"validation", validation},
          {"best_step", r.best_step},
          {"best_loss", r.best_loss},
          {"diverged", r.diverged},
          {"expert_tokens", experts},
          {"empty_batches", r.empty_batches}};
}

TrainReport train_report(const Json& json) {
  TrainReport r;
  json.at("steps_done").get_to(r.steps_done);
  json.at("tokens_seen").get_to(r.tokens_seen);
  json.at("learning_rate").get_to(r.learning_rate);
  json.at("seconds").get_to(r.seconds);
  for (const Json& loss : json.at("losses")) r.losses.push_back(number_of(loss));
  json.at("best_step").get_to(r.best_step);
  json.at("best_loss").get_to(r.best_loss);
  json.at("diverged").get_to(r.diverged);
  json.at("empty_batches").get_to(r.empty_batches);
  for (const auto& point : json.at("validation"))
    r.validation.push_back({point.at(0).get<std::int64_t>(), point.at(1).get<double>()});
  for (const auto& [layer, tokens] : json.at("expert_tokens").items())
    tokens.get_to(r.expert_tokens[std::stoll(layer)]);
  return r;
}

void TrainState::save(const std::filesystem::path& file) const {
  const StringMap metadata = {{"format", kFormat},
                              {"optimizer_steps", std::to_string(optimizer.steps())},
                              {"report", to_json(report).dump()}};
  SafetensorsWriter writer(file, optimizer.specs(), metadata);
  optimizer.write(writer);
  writer.commit();
}

void TrainState::load(const SafetensorsFile& file) {
  const auto& metadata = file.metadata();
  const auto format = metadata.find("format");
  if (format == metadata.end() || format->second != kFormat)
    fail(ErrorCode::format, file.where(), ": is no training state, expected format '", kFormat, "'");
  try {
    const TrainReport found = train_report(parse_json(metadata.at("report"), file.where()));
    optimizer.read(file, std::stoll(metadata.at("optimizer_steps")));
    report = found;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // of json and of std::stoll
    fail(ErrorCode::format, file.where(), ": report is malformed: ", error.what());
  }
}

}  // namespace mixtape
