#include "cli/stored_forms.h"

#include <fmt/core.h>

#include "mixtape/io/gguf.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape::cli {
namespace {

namespace fs = std::filesystem;

void count(StoredForms& forms, const std::string& name, std::int64_t weights, double bytes) {
  StoredForm& form = forms[name];
  ++form.tensors;
  form.weights += weights;
  form.bytes += bytes;
}

double stored_bytes(const ModelSource& source, const std::string& tensor) {
  return static_cast<double>(source.shape(tensor).numel()) *
         static_cast<double>(size_of(source.stored_dtype(tensor)));
}

StoredForms forms_of_directory(const ModelSource& source, const std::vector<ModelTensor>& tensors) {
  StoredForms forms;
  const QuantizedReader reader(source);
  for (const ModelTensor& t : tensors) {
    const std::string path = module_path(t.name);
    if (t.name.ends_with(".weight") && reader.is_quantized(path)) {
      const AffineParams params = reader.format(path, t.shape);
      double bytes = 0.0;
      for (const char* part : {".weight", ".scales", ".biases"}) bytes += stored_bytes(source, path + part);
      count(forms, form_of(params), t.shape.numel(), bytes);
    } else {
      count(forms, name(source.stored_dtype(t.name)), t.shape.numel(), stored_bytes(source, t.name));
    }
  }
  return forms;
}

StoredForms forms_of_gguf(const fs::path& path) {
  StoredForms forms;
  const GgufFile file(path);
  for (const GgufTensor& t : file.tensors()) {
    count(forms, gguf_type_info(t.type).name, t.shape.numel(), static_cast<double>(t.bytes.size()));
  }
  return forms;
}

}  // namespace

std::string form_of(const AffineParams& p) { return fmt::format("{} bits, group {}", p.bits, p.group_size); }

StoredForms stored_forms(const ModelSource& source, const fs::path& path) {
  return fs::is_directory(path) ? forms_of_directory(source, tensor_list(source.config()))
                                : forms_of_gguf(path);
}

StoredForm total(const StoredForms& forms) {
  StoredForm all;
  for (const auto& [name, f] : forms) {
    all.tensors += f.tensors;
    all.weights += f.weights;
    all.bytes += f.bytes;
  }
  return all;
}

}  // namespace mixtape::cli
