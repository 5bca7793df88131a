// A dense transformer in double, written as plainly as can be: every token attends to every earlier one through a full
// mask. The truth for tests of llama and gemma3 files with F32 tensors. Tests only.
#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/ids.h"
#include "gguf/gguf.h"
#include "model/tensors.h"

namespace lode::model::test {

class Reference {
 public:
  using Row = std::vector<double>;

  const gguf::File& file;
  std::int64_t heads = 4, kv_heads = 2, dim = 64;
  double eps = 1e-5;
  bool gemma = false;                  // Else llama.
  std::vector<double> inv_freq;        // Of the layers with full attention.
  std::vector<double> inv_freq_local;  // Of gemma's local layers.
  std::int64_t window = 0;             // Of gemma's local layers; 0: none.
  std::function<bool(std::int64_t)> is_local = [](std::int64_t) { return false; };

  // Logits [ids, vocab].
  std::vector<double> logits(std::span<const TokenId> ids) const {
    const gguf::Tensor& embd = tensor("token_embd.weight");
    const std::int64_t width = embd.shape[0];
    std::vector<Row> x;
    for (const TokenId id : ids) {
      x.emplace_back();
      for (std::int64_t i = 0; i < width; ++i)
        x.back().push_back(values(embd)[id * width + i] * (gemma ? std::sqrt(static_cast<double>(width)) : 1));
    }
    for (std::int64_t layer = 0; file.tensor(layer_tensor(layer, "attn_q")); ++layer) run_layer(layer, x);
    std::vector<double> out;
    const std::string head = file.tensor("output.weight") ? "output.weight" : "token_embd.weight";
    for (const Row& row : x)
      for (const double v : product(head, norm(row, "output_norm.weight"))) out.push_back(v);
    return out;
  }

 private:
  const gguf::Tensor& tensor(const std::string& name) const {
    const gguf::Tensor* t = file.tensor(name);
    EXPECT_NE(t, nullptr) << name;
    return *t;
  }
  static const float* values(const gguf::Tensor& t) { return reinterpret_cast<const float*>(t.data); }

  Row product(const std::string& name, const Row& x) const {
    const gguf::Tensor& w = tensor(name);
    Row y(static_cast<std::size_t>(w.shape[1]));
    for (std::size_t r = 0; r < y.size(); ++r)
      for (std::size_t k = 0; k < x.size(); ++k) y[r] += values(w)[r * x.size() + k] * x[k];
    return y;
  }
  Row norm(const Row& x, const std::string& name) const {
    double sum = 0;
    for (const double v : x) sum += v * v;
    Row y = x;
    const float* w = values(tensor(name));
    for (std::size_t i = 0; i < x.size(); ++i) y[i] *= w[i] / std::sqrt(sum / static_cast<double>(x.size()) + eps);
    return y;
  }
  // Norms (gemma) and rotates every head of q or k at a position.
  Row rotated(const Row& x, std::int64_t position, const std::vector<double>& freq,
              const std::string& norm_name) const {
    Row out;
    for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(dim)) {
      Row head(x.begin() + static_cast<std::ptrdiff_t>(at), x.begin() + static_cast<std::ptrdiff_t>(at) + dim);
      if (gemma) head = norm(head, norm_name);
      for (std::size_t i = 0; i < freq.size(); ++i) {
        double& a = head[gemma ? i : 2 * i];
        double& b = head[gemma ? i + freq.size() : 2 * i + 1];
        const double angle = static_cast<double>(position) * freq[i], c = std::cos(angle), s = std::sin(angle);
        const double was = a;
        a = was * c - b * s;
        b = was * s + b * c;
      }
      out.insert(out.end(), head.begin(), head.end());
    }
    return out;
  }

  void run_layer(std::int64_t layer, std::vector<Row>& x) const {
    const auto name = [&](std::string_view part) { return layer_tensor(layer, part); };
    const bool local = is_local(layer);
    const std::vector<double>& freq = local ? inv_freq_local : inv_freq;
    std::vector<Row> keys, vals;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const std::int64_t position = static_cast<std::int64_t>(t);
      const Row in = norm(x[t], name("attn_norm"));
      const Row q = rotated(product(name("attn_q"), in), position, freq, name("attn_q_norm"));
      keys.push_back(rotated(product(name("attn_k"), in), position, freq, name("attn_k_norm")));
      vals.push_back(product(name("attn_v"), in));
      Row mixed;
      for (std::int64_t h = 0; h < heads; ++h) attend(q, h, keys, vals, local ? window : 0, mixed);
      add(x[t], mixed, name("attn_output"), gemma ? name("post_attention_norm") : "");
      const Row ffn_in = norm(x[t], name("ffn_norm"));
      Row gate = product(name("ffn_gate"), ffn_in);
      const Row up = product(name("ffn_up"), ffn_in);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = activation(gate[i]) * up[i];
      add(x[t], gate, name("ffn_down"), gemma ? name("post_ffw_norm") : "");
    }
  }
  // Appends head h of the last token.
  void attend(const Row& q, std::int64_t h, const std::vector<Row>& keys, const std::vector<Row>& vals,
              std::int64_t seen, Row& out) const {
    const std::size_t kv = static_cast<std::size_t>(h / (heads / kv_heads) * dim), n = keys.size();
    const std::size_t from = static_cast<std::size_t>(h * dim), d = static_cast<std::size_t>(dim);
    Row score(n, -INFINITY);
    for (std::size_t t = 0; t < n; ++t) {
      if (seen > 0 && static_cast<std::int64_t>(n - t) > seen) continue;  // The mask: itself and seen - 1 before.
      score[t] = 0;
      for (std::size_t i = 0; i < d; ++i) score[t] += q[from + i] * keys[t][kv + i];
      score[t] /= std::sqrt(static_cast<double>(dim));
    }
    double top = -INFINITY, sum = 0;
    for (const double s : score) top = std::max(top, s);
    for (double& s : score) sum += s = std::exp(s - top);
    for (std::size_t i = 0; i < d; ++i) {
      double v = 0;
      for (std::size_t t = 0; t < n; ++t) v += score[t] / sum * vals[t][kv + i];
      out.push_back(v);
    }
  }
  void add(Row& x, const Row& in, const std::string& matrix, const std::string& norm_name) const {
    Row y = product(matrix, in);
    if (!norm_name.empty()) y = norm(y, norm_name);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  double activation(double x) const {
    return gemma ? 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) : x / (1 + std::exp(-x));
  }
};

}  // namespace lode::model::test
