// Every public function refuses bad arguments before it touches anything: one argument of a valid call is
// spoilt at a time (dtype, rank, size, null, device, shared memory), an Error is expected, and all buffers as
// they were.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>

#include "argument_rows.h"
#include "mixtape/core/random.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

struct Argument {
  std::string name;
  DType dtype;
  std::vector<std::string> dims;
  bool is_written, may_be_null, any_value, any_dtype, any_rank;
};

const std::map<char, std::int64_t> kSizes = {{'B', 2}, {'C', 8}, {'D', 16}, {'E', 4},  {'H', 6}, {'K', 64},
                                             {'N', 3}, {'S', 7}, {'T', 9},  {'V', 11}, {'k', 2}};

DType dtype_named(const std::string& text) {
  for (int i = 0; i <= static_cast<int>(DType::u16); ++i) {
    if (text == name(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  ADD_FAILURE() << "no dtype " << text;
  return DType::f32;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

std::vector<Argument> parse(const std::string& text) {
  std::vector<Argument> arguments;
  for (const std::string& part : split(text, ';')) {
    std::istringstream in(part);
    std::string label, dtype, dims;
    in >> label >> dtype >> dims;
    const auto is_marked = [&](char mark) { return label.find(mark) != std::string::npos; };
    arguments.push_back({label.substr(0, label.find_first_of("*?~#^")), dtype_named(dtype), split(dims, ','),
                         is_marked('*'), is_marked('?'), is_marked('~'), is_marked('#'), is_marked('^')});
  }
  return arguments;
}

std::int64_t size_of_dim(const std::string& dim, char emptied) {
  if (std::isdigit(dim[0])) return std::stoll(dim);
  const std::int64_t size = dim[0] == emptied ? 0 : kSizes.at(dim[0]);
  if (dim.size() == 1) return size;
  const std::int64_t by = std::stoll(dim.substr(2));
  return dim[1] == '*' ? size * by : dim[1] == '/' ? size / by : size + by;
}

Shape shape_of(const Argument& argument, char emptied = 0) {
  std::vector<std::int64_t> dims;
  for (const std::string& dim : argument.dims) dims.push_back(size_of_dim(dim, emptied));
  return Shape(dims);
}

// Values around 1, indices 0; every argument different.
void fill_with_data(const Buffer& b, std::size_t seed) {
  std::vector<std::byte> bytes(b.bytes(), std::byte{0});
  if (b.dtype() == DType::f32) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < b.numel(); ++i)
      values.push_back(static_cast<float>(0.5 + uniform(seed, static_cast<std::uint64_t>(i))));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  if (!bytes.empty()) b.write_bytes(bytes.data());
}

Buffer make(const Device& device, DType dtype, const Shape& shape, std::size_t seed) {
  const Buffer b = device.alloc(dtype, shape);
  fill_with_data(b, seed);
  return b;
}

class Arguments : public ::testing::TestWithParam<ArgumentRow> {
 protected:
  Buffers valid() const {
    Buffers buffers;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      buffers.push_back(make(device, arguments[i].dtype, shape_of(arguments[i]), i));
    return buffers;
  }

  // What the call wrote; errors at wait (indices of 0 don't suit every op) are none of this test's.
  std::vector<std::vector<std::byte>> run(const Buffers& buffers) const {
    CommandEncoder encoder(device);
    row.call(encoder, buffers);
    try {
      encoder.commit_and_wait();
    } catch (const Error&) {
    }
    return bytes_of(buffers);
  }

  static std::vector<std::vector<std::byte>> bytes_of(const Buffers& buffers) {
    std::vector<std::vector<std::byte>> all;
    for (const Buffer& b : buffers) all.push_back(b ? testing::download_bytes(b) : std::vector<std::byte>());
    return all;
  }

  void expect_refused(const std::string& what, const Buffers& buffers) const {
    const auto before = bytes_of(buffers);
    try {
      CommandEncoder encoder(device);
      row.call(encoder, buffers);
      ADD_FAILURE() << row.name << " accepts " << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument)
          << row.name << ", " << what << ": " << error.what();
    }
    EXPECT_EQ(bytes_of(buffers), before) << row.name << " wrote before it refused " << what;
  }

  // The call with argument i replaced.
  void expect_refused(const std::string& what, std::size_t i, const Buffer& spoilt) const {
    Buffers buffers = valid();
    buffers[i] = spoilt;
    expect_refused(str(arguments[i].name, " ", what, ": ", spoilt), buffers);
  }

  bool is_named_once(const std::string& dim) const {
    int count = 0;
    for (const Argument& a : arguments) {
      for (const std::string& d : a.dims) count += d[0] == dim[0];
    }
    return count == 1 && !std::isdigit(dim[0]);
  }

  const ArgumentRow& row = GetParam();
  const bool makes_outputs = row.arguments.find('*') == std::string::npos;
  const std::vector<Argument> arguments = parse(row.arguments);
  const Device device = Device::cpu();
};

TEST_P(Arguments, ValidCallIsAccepted) { run(valid()); }

TEST_P(Arguments, WrongDtype) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& a = arguments[i];
    if (a.any_dtype && makes_outputs) continue;
    std::vector<DType> wrong = {a.dtype == DType::u8 ? DType::u16 : DType::u8,
                                is_value(a.dtype) ? DType::i32 : DType::f32};
    if (is_value(a.dtype) && !a.any_value && (arguments.size() > 1 || a.is_written))
      wrong.push_back(DType::bf16);
    for (const DType dtype : wrong) {
      if (dtype == DType::bf16 && makes_outputs) continue;
      expect_refused("of another dtype", i, make(device, dtype, shape_of(a), i));
    }
  }
}

TEST_P(Arguments, WrongShape) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& a = arguments[i];
    const Shape shape = shape_of(a);
    if (!a.any_rank) expect_refused("of rank 0", i, make(device, a.dtype, Shape{}, i));
    for (std::int64_t axis = 0; axis < shape.rank(); ++axis) {
      if (is_named_once(a.dims[static_cast<std::size_t>(axis)])) continue;
      for (const std::int64_t size : {shape[axis] + 1, std::int64_t{0}})
        expect_refused("of another size", i, make(device, a.dtype, shape.with(axis, size), i));
    }
  }
}

// All arguments agree that a dimension is 0. Of rows there may be none: what comes out is empty or a sum of
// nothing, 0. Where a row lacks elements, a function may refuse.
TEST_P(Arguments, EmptyDimension) {
  for (const auto& [letter, size] : kSizes) {
    if (row.arguments.find(letter) == std::string::npos) continue;
    Buffers buffers;
    bool is_used = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Shape shape = shape_of(arguments[i], letter);
      is_used = is_used || shape.numel() == 0;
      buffers.push_back(make(device, arguments[i].dtype, shape, i));
    }
    if (!is_used) continue;
    const bool are_rows = letter == 'B' || letter == 'S' || letter == 'T';
    try {
      const auto bytes = run(buffers);
      for (std::size_t i = 0; are_rows && i < arguments.size(); ++i) {
        const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
        EXPECT_TRUE(!arguments[i].is_written || std::all_of(bytes[i].begin(), bytes[i].end(), is_zero))
            << row.name << " without " << letter << " leaves " << arguments[i].name;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_FALSE(are_rows) << error.what();
    }
  }
}

TEST_P(Arguments, NullBuffer) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].may_be_null) expect_refused("null", i, Buffer());
  }
}

TEST_P(Arguments, BufferOfAnotherDevice) {
  const Device sim = Device::open("sim");
  for (std::size_t i = 0; i < arguments.size(); ++i)
    expect_refused("on another device", i, make(sim, arguments[i].dtype, shape_of(arguments[i]), i));
}

// One element apart: never allowed. The same buffer: where the row says so, and then with the same result.
TEST_P(Arguments, SharedMemory) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for (std::size_t j = 0; j < arguments.size(); ++j) {
      const Argument &out = arguments[i], &other = arguments[j];
      if (!out.is_written || i == j || out.dtype != other.dtype || (other.is_written && j < i)) continue;
      Buffers buffers = valid();
      const std::int64_t n = buffers[i].numel(), m = buffers[j].numel();
      const Buffer memory = make(device, out.dtype, {std::max(n + 1, m)}, j);
      buffers[i] = memory.slice(1, n + 1).reshape(buffers[i].shape());
      buffers[j] = memory.slice(0, m).reshape(buffers[j].shape());
      if (m > 1) expect_refused(str(out.name, " one element into ", other.name), buffers);
      if (n != m) continue;

      buffers[j] = make(device, other.dtype, shape_of(other), j);
      buffers[i] = buffers[j].reshape(buffers[i].shape());
      if (str(" ", row.aliases, " ").find(str(" ", out.name, "=", other.name, " ")) == std::string::npos) {
        expect_refused(str(out.name, " in the memory of ", other.name), buffers);
        continue;
      }
      Buffers separate = valid();
      separate[i] = make(device, out.dtype, shape_of(out), j);
      const auto apart = run(separate), together = run(buffers);
      EXPECT_EQ(together[i], apart[i]) << row.name << ": " << out.name << " in place of " << other.name;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<ArgumentRow>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Calls, Arguments, ::testing::ValuesIn(rows_of_calls()), name_of);
INSTANTIATE_TEST_SUITE_P(Makers, Arguments, ::testing::ValuesIn(rows_of_makers()), name_of);

}  // namespace
}  // namespace mixtape
