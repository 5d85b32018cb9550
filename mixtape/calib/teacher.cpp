#include "mixtape/calib/teacher.h"

namespace mixtape {

Teacher::Teacher(const ModelSource& source, DType compute, bool streamed, Tape& tape)
    : source_(source),
      compute_(compute),
      tape_(tape),
      parameters_(streamed ? Parameters() : load_parameters(source, source.config(), compute, tape.device())),
      is_streamed_(streamed),
      weights_(weights()),
      model_(source.config(), weights_, compute) {}

TapeWeights Teacher::weights() const {
  return is_streamed_ ? TapeWeights(tape_, source_, compute_)
                      : TapeWeights(tape_, parameters_, Trainable::nothing);
}

Buffer Teacher::tensor(const std::string& name) const {
  const auto found = parameters_.dense.find(name);
  return found != parameters_.dense.end() ? found->second : source_.load(name, compute_, tape_.device());
}

}  // namespace mixtape
