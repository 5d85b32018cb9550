// Adam over a model's trainable tensors, their best values, and both in a file.
#pragma once

#include <string>
#include <vector>

#include "mixtape/io/safetensors.h"
#include "mixtape/io/safetensors_writer.h"
#include "mixtape/nn/tape_weights.h"
#include "mixtape/ops/adam/adam_optimizer.h"
#include "mixtape/runtime/communicator.h"

namespace mixtape {

class Optimizer {
 public:
  // The values at this moment are the best ones so far. Throws invalid_argument for a leaf that isn't f32.
  Optimizer(const std::vector<NamedVar>& leaves, std::vector<float> units);

  void clear_gradients() const { adam_.zero_grad(); }
  void zero_gradients() const;  // those that are there, in their places
  // Adds the gradients up over all members, scales them to a norm of at most clip_norm (0: as they are), and
  // steps. Begun, not waited for.
  void step(double rate, double weight_decay, double clip_norm, Communicator& communicator);

  void keep_best() const;     // the values of now
  void restore_best() const;  // become the values of now
  void wait() const;          // for all that was encoded

  // Throws device, naming the step, for one member at least unless all have the same values, to the last bit.
  void expect_equal_values(Communicator& communicator) const;

  // Tensors "<name>.value", ".first_moment", ".second_moment", ".best" for each leaf, and "units".
  std::vector<TensorSpec> specs() const;
  void write(SafetensorsWriter& writer) const;
  std::int64_t steps() const { return adam_.steps(); }
  // Takes over what write() wrote for the same leaves. Throws format, naming the tensor, if one is missing or
  // of another shape.
  void read(const SafetensorsFile& file, std::int64_t steps);

 private:
  template <class Fn>
  void for_each_tensor(const Fn& fn) const;  // fn(name in the file, buffer)
  void reduce_gradients(Communicator& communicator) const;

  std::vector<std::string> names_;
  Adam adam_;
  std::vector<Buffer> best_;
};

// The unit of each leaf's step: the mean magnitude of its values, for a quantized weight's parts what its codec says
// (quant/weight_codec.h), for latent codes a code.
std::vector<float> relative_units(const std::vector<NamedVar>& leaves, const Parameters& parameters);

}  // namespace mixtape
