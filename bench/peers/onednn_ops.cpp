// oneDNN's own primitives at the shapes of the ops' benches: softmax, log_softmax, swish.
//   onednn_ops OUT.csv [FILTER]      rows: op,dtype,shape,impl,us,best_us
#include <cstdio>
#include <dnnl.hpp>
#include <fstream>

#include "mixtape/runtime/command_encoder.h"
#include "mixtape/testing/copy_bandwidth.h"

namespace mixtape {
namespace {

using testing::Timing;
using Arguments = std::unordered_map<int, dnnl::memory>;
using Type = dnnl::memory::data_type;

class Peers {
 public:
  Peers(const char* file, const char* filter) : out_(file), filter_(filter) {
    out_ << "op,dtype,shape,impl,us,best_us\n";
  }

  void swish(Type type, std::int64_t n) {
    kept_.clear();
    const dnnl::memory::desc shape({n}, type, dnnl::memory::format_tag::a);
    const dnnl::eltwise_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, dnnl::algorithm::eltwise_swish, shape, 1.0f, 0.0f}, engine_);
    const dnnl::eltwise_backward::primitive_desc backward(
        {dnnl::algorithm::eltwise_swish, shape, shape, 1.0f, 0.0f}, engine_, forward);
    const dnnl::memory x = memory(shape), y = memory(shape), dy = memory(shape);
    measure("elementwise_silu_forward", type, str(n), dnnl::eltwise_forward(forward),
            {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
    measure("elementwise_silu_backward", type, str(n), dnnl::eltwise_backward(backward),
            {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, y}});
  }

  template <class Forward, class Backward>
  void softmax(const std::string& name, Type type, std::int64_t rows, std::int64_t cols) {
    kept_.clear();
    const dnnl::memory::desc shape({rows, cols}, type, dnnl::memory::format_tag::ab);
    const typename Forward::primitive_desc forward({dnnl::prop_kind::forward_training, shape, 1}, engine_);
    const typename Backward::primitive_desc backward({shape, shape, 1}, engine_, forward);
    const dnnl::memory x = memory(shape), y = memory(shape), dy = memory(shape);
    const std::string at = str(rows, "x", cols);
    measure(name + "_forward", type, at, Forward(forward), {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
    measure(name + "_backward", type, at, Backward(backward),
            {{DNNL_ARG_DST, y}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, x}});
  }

 private:
  // The library's own memory: large pages, touched.
  dnnl::memory memory(const dnnl::memory::desc& shape) {
    kept_.push_back(device_.alloc(DType::u8, {static_cast<std::int64_t>(shape.get_size())}));
    CommandEncoder encoder(device_);
    encoder.fill(kept_.back(), 0.0f);
    encoder.commit_and_wait();
    return {shape, engine_, kept_.back().host_bytes()};
  }

  void measure(const std::string& op, Type type, const std::string& shape, const dnnl::primitive& work,
               const Arguments& arguments) {
    const std::string row = str(op, ',', type == Type::f32 ? "f32" : "bf16", ',', shape);
    if (row.find(filter_) == std::string::npos) return;
    const Timing found = testing::time_calls(
        [&] {
          work.execute(stream_, arguments);
          stream_.wait();
        },
        0.4);
    const dnnl_version_t& version = *dnnl_version();
    const std::string line = str(row, ",oneDNN ", version.major, '.', version.minor, '.', version.patch, ',',
                                 found.median * 1e6, ',', found.best * 1e6);
    out_ << line << '\n';
    std::puts(line.c_str());
  }

  std::ofstream out_;
  std::string filter_;
  Device device_ = Device::cpu();
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<Buffer> kept_;
};

void run(const char* file, const char* filter) {
  Peers peers(file, filter);
  for (const Type type : {Type::f32, Type::bf16}) {
    for (const std::int64_t n : {65536, 262144, 16777216}) peers.swish(type, n);
    for (const auto& [rows, cols] :
         {std::pair{512, 128}, {8192, 128}, {262144, 128}, {8192, 4096}, {512, 151936}}) {
      peers.softmax<dnnl::softmax_forward, dnnl::softmax_backward>("softmax", type, rows, cols);
      peers.softmax<dnnl::logsoftmax_forward, dnnl::logsoftmax_backward>("log_softmax", type, rows, cols);
    }
  }
}

}  // namespace
}  // namespace mixtape

int main(int count, char** arguments) {
  if (count < 2) return 2;
  mixtape::run(arguments[1], count > 2 ? arguments[2] : "");
  return 0;
}
