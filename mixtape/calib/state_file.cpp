#include "mixtape/calib/state_file.h"

#include <cmath>

#include "mixtape/io/json_file.h"
#include "mixtape/io/safetensors_writer.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

constexpr const char* kStateFormat = "mixtape state 1";

std::vector<WeightPart> parts_of(const PlannedModule& module) {
  return codec_of(*module.stored).parts(module.shape, *module.stored, DType::f32);
}

template <class T>
Buffer host_buffer(const std::vector<T>& values) {
  return Buffer::from(Device::cpu(), {std::ssize(values)}, values);
}

template <class T>
std::vector<T> host_values(const SafetensorsFile& file, const std::string& name) {
  return load(name, file.at(name), dtype_of<T>(), Device::cpu()).template to_vector<T>();
}

}  // namespace

void StateFile::save(const std::filesystem::path& file) const {
  std::vector<TensorSpec> specs;
  for (const auto& [name, b] : tensors) specs.push_back({name, file_dtype_of(b.dtype()), b.shape()});
  SafetensorsWriter writer(file, specs, {{"format", kStateFormat}, {"state", figures.dump()}});
  for (const auto& [name, b] : tensors) writer.write(name, b);
  writer.commit();
}

void StateFile::add(const std::string& name, const QuantizedWeight& weight) {
  const WeightCodec& codec = codec_of(weight);
  const std::vector<WeightPart> parts = codec.parts(weight_shape(weight), format_of(weight), DType::f32);
  const std::vector<Buffer> buffers = codec.buffers(weight);
  for (std::size_t i = 0; i < parts.size(); ++i) tensors.emplace_back(name + parts[i].suffix, buffers[i]);
}

void StateFile::add(const std::string& name, const PositionFigures& figures_by_position) {
  const PositionFigures& f = figures_by_position;
  tensors.emplace_back(name + ".nll", host_buffer(f.nll));
  tensors.emplace_back(name + ".teacher_nll", host_buffer(f.teacher_nll));
  tensors.emplace_back(name + ".kl", host_buffer(f.kl));
  tensors.emplace_back(name + ".same_top1", host_buffer(f.same_top1));
  figures[name + ".row_ends"] = f.row_ends;
}

nlohmann::json figures_of(const SafetensorsFile& file) {
  const auto& metadata = file.metadata();
  const auto format = metadata.find("format"), state = metadata.find("state");
  if (format == metadata.end() || format->second != kStateFormat || state == metadata.end())
    fail(ErrorCode::format, file.where(), ": is no state of a run, expected format '", kStateFormat, "'");
  return parse_json(state->second, file.where());
}

void read_figures(const SafetensorsFile& file, const std::function<void(const nlohmann::json&)>& read) {
  const nlohmann::json figures = figures_of(file);
  try {
    read(figures);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::format, file.where(), ": state is malformed: ", json_fault(error));
  }
}

bool has_weight(const SafetensorsFile& file, const std::string& name, const PlannedModule& module) {
  return file.has(name + parts_of(module).front().suffix);
}

QuantizedWeight weight_of(const SafetensorsFile& file, const std::string& name, const PlannedModule& module,
                          const Device& device) {
  std::vector<Buffer> buffers;
  for (const WeightPart& part : parts_of(module)) {
    const TensorView& view = file.at(name + part.suffix);
    if (!(view.shape == part.shape)) {
      fail(ErrorCode::format, file.where(), ": tensor '", name, part.suffix, "' is ", view.shape,
           ", expected ", part.shape);
    }
    buffers.push_back(load(name + part.suffix, view, part.dtype, device));
  }
  return codec_of(*module.stored).weight(buffers, *module.stored);
}

PositionFigures positions_of(const SafetensorsFile& file, const std::string& name) {
  PositionFigures f;
  f.nll = host_values<float>(file, name + ".nll");
  f.teacher_nll = host_values<float>(file, name + ".teacher_nll");
  f.kl = host_values<float>(file, name + ".kl");
  f.same_top1 = host_values<std::uint8_t>(file, name + ".same_top1");
  read_figures(file, [&](const nlohmann::json& json) { json.at(name + ".row_ends").get_to(f.row_ends); });
  return f;
}

double number_of(const nlohmann::json& json) { return json.is_null() ? std::nan("") : json.get<double>(); }

}  // namespace mixtape
