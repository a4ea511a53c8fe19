#pragma once
/// @file
/// Both model families once more, in double precision and plain loops: forward only. Gradients are
/// checked against central differences of its loss, which double precision makes good to 1e-8.
///     N = B T tokens, C width, V vocabulary; every array is row-major

#include <scape/base/flat_layout.hpp>
#include <scape/config/run_config.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace scape::test {

class ReferenceModel {
   public:
    using Values = std::vector<double>;

    ReferenceModel(const config::ModelConfig& config, const FlatLayout& layout)
        : config_(config), layout_(layout) {}

    /// (N, V), without padding. `parameters`: the flat buffer.
    Values logits(const Values& parameters, const std::vector<Token>& tokens, Index seq) const {
        const Pass pass{*this, parameters, seq, static_cast<Index>(tokens.size())};
        return config_.family == config::Family::gpt ? pass.gpt(tokens) : pass.llama(tokens);
    }

    /// Sum of -log softmax(logits)[target] over the targets that count.
    double loss(const Values& parameters, const std::vector<Token>& tokens,
                const std::vector<Token>& targets, Index seq) const {
        const Values all = logits(parameters, tokens, seq);
        double total = 0;
        for (std::size_t i = 0; i < targets.size(); ++i) {
            if (targets[i] == ignored_target) continue;
            const double* row = &all[i * config_.vocab];
            double sum = 0;
            for (Index v = 0; v < config_.vocab; ++v) sum += std::exp(row[v]);
            total += std::log(sum) - row[targets[i]];
        }
        return total;
    }

   private:
    struct Pass {
        const ReferenceModel& model;
        const Values& parameters;
        Index seq;
        Index n;

        const config::ModelConfig& c() const { return model.config_; }
        const double* at(const std::string& name) const {
            return &parameters[model.layout_.tensor(name).offset];
        }
        Index first_extent(const std::string& name) const {
            return model.layout_.tensor(name).shape[0];
        }

        Values embedding(const std::vector<Token>& tokens, const double* wpe) const {
            Values x(n * c().width);
            for (Index i = 0; i < n; ++i)
                for (Index j = 0; j < c().width; ++j) {
                    x[i * c().width + j] = at("wte")[tokens[i] * c().width + j];
                    if (wpe) x[i * c().width + j] += wpe[i % seq * c().width + j];
                }
            return x;
        }

        /// y (N, M) = x (N, K) w^T + bias
        Values linear(const Values& x, const std::string& name, bool with_bias) const {
            const Index m = first_extent(name + "weight"), k = static_cast<Index>(x.size()) / n;
            const double* w = at(name + "weight");
            Values y(n * m);
            for (Index i = 0; i < n; ++i)
                for (Index o = 0; o < m; ++o) {
                    double sum = with_bias ? at(name + "bias")[o] : 0;
                    for (Index j = 0; j < k; ++j) sum += x[i * k + j] * w[o * k + j];
                    y[i * m + o] = sum;
                }
            return y;
        }

        Values layer_norm(const Values& x, const std::string& name) const {
            const Index w = c().width;
            Values y(x.size());
            for (Index i = 0; i < n; ++i) {
                double mean = 0, variance = 0;
                for (Index j = 0; j < w; ++j) mean += x[i * w + j] / w;
                for (Index j = 0; j < w; ++j) variance += std::pow(x[i * w + j] - mean, 2) / w;
                for (Index j = 0; j < w; ++j)
                    y[i * w + j] = (x[i * w + j] - mean) / std::sqrt(variance + c().norm_eps) *
                                       at(name + ".gain")[j] +
                                   at(name + ".bias")[j];
            }
            return y;
        }

        Values rms_norm(const Values& x, const std::string& name) const {
            const Index w = c().width;
            Values y(x.size());
            for (Index i = 0; i < n; ++i) {
                double square = 0;
                for (Index j = 0; j < w; ++j) square += x[i * w + j] * x[i * w + j] / w;
                for (Index j = 0; j < w; ++j)
                    y[i * w + j] =
                        x[i * w + j] / std::sqrt(square + c().norm_eps) * at(name + ".gain")[j];
            }
            return y;
        }

        /// qkv (N, (H + 2 Hkv) D) -> (N, H D)
        Values attention(const Values& qkv, Index heads, Index kv_heads) const {
            const Index d = c().width / heads, row = (heads + 2 * kv_heads) * d;
            Values out(n * heads * d, 0.0);
            for (Index i = 0; i < n; ++i)
                for (Index h = 0; h < heads; ++h) {
                    const Index start = i - i % seq, kv = h / (heads / kv_heads);
                    Values p;
                    double sum = 0;
                    for (Index j = start; j <= i; ++j) {
                        double score = 0;
                        for (Index e = 0; e < d; ++e)
                            score += qkv[i * row + h * d + e] * qkv[j * row + (heads + kv) * d + e];
                        p.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
                        sum += p.back();
                    }
                    for (Index j = start; j <= i; ++j)
                        for (Index e = 0; e < d; ++e)
                            out[(i * heads + h) * d + e] +=
                                p[j - start] / sum * qkv[j * row + (heads + kv_heads + kv) * d + e];
                }
            return out;
        }

        /// Turns the pairs (j, j + D/2) of the first `heads` heads by t / base^(2 j / D).
        void rotate(Values& qkv, Index heads, Index d) const {
            const Index row = static_cast<Index>(qkv.size()) / n;
            for (Index i = 0; i < n; ++i)
                for (Index h = 0; h < heads; ++h)
                    for (Index j = 0; j < d / 2; ++j) {
                        const double angle =
                            (i % seq) * std::pow(c().rope_base, -2.0 * j / static_cast<double>(d));
                        double& a = qkv[i * row + h * d + j];
                        double& b = qkv[i * row + h * d + j + d / 2];
                        const double turned = a * std::cos(angle) - b * std::sin(angle);
                        b = b * std::cos(angle) + a * std::sin(angle);
                        a = turned;
                    }
        }

        static void add(Values& x, const Values& y) {
            for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
        }

        Values head(const Values& y) const {
            const double* w = at(c().tied ? "wte" : "head.weight");
            Values out(n * c().vocab, 0.0);
            for (Index i = 0; i < n; ++i)
                for (Index v = 0; v < c().vocab; ++v)
                    for (Index j = 0; j < c().width; ++j)
                        out[i * c().vocab + v] += y[i * c().width + j] * w[v * c().width + j];
            return out;
        }

        Values gpt(const std::vector<Token>& tokens) const {
            Values x = embedding(tokens, at("wpe"));
            for (Index l = 0; l < c().layers; ++l) {
                const std::string h = "h." + std::to_string(l) + ".";
                const Values qkv = linear(layer_norm(x, h + "ln1"), h + "attn.qkv.", true);
                add(x, linear(attention(qkv, c().heads, c().heads), h + "attn.proj.", true));
                Values f = linear(layer_norm(x, h + "ln2"), h + "mlp.fc.", true);
                for (double& v : f)
                    v = 0.5 * v *
                        (1 +
                         std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
                add(x, linear(f, h + "mlp.proj.", true));
            }
            return head(layer_norm(x, "lnf"));
        }

        Values llama(const std::vector<Token>& tokens) const {
            const Index d = c().width / c().heads;
            const Index kv_heads = c().kv_heads > 0 ? c().kv_heads : c().heads;
            Values x = embedding(tokens, nullptr);
            for (Index l = 0; l < c().layers; ++l) {
                const std::string h = "layers." + std::to_string(l) + ".";
                Values qkv = linear(rms_norm(x, h + "norm1"), h + "attn.qkv.", false);
                rotate(qkv, c().heads + kv_heads, d);
                add(x, linear(attention(qkv, c().heads, kv_heads), h + "attn.proj.", false));
                const Values both = linear(rms_norm(x, h + "norm2"), h + "mlp.gate_up.", false);
                const Index f = static_cast<Index>(both.size()) / n / 2;
                Values product(n * f);
                for (Index i = 0; i < n; ++i)
                    for (Index j = 0; j < f; ++j) {
                        const double gate = both[2 * i * f + j], up = both[(2 * i + 1) * f + j];
                        product[i * f + j] = gate / (1 + std::exp(-gate)) * up;
                    }
                add(x, linear(product, h + "mlp.down.", false));
            }
            return head(rms_norm(x, "norm"));
        }
    };

    config::ModelConfig config_;
    FlatLayout layout_;
};

}  // namespace scape::test
