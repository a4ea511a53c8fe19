#include <scape/model/flops.hpp>
#include <scape/model/parameters.hpp>

namespace scape::model {

Index parameter_count(const config::ModelConfig& config) {
    return plan_parameters(config).layout.parameters();
}

double flops_per_token(const config::ModelConfig& config, Index seq_len) {
    const Dimensions d = dimensions(config);
    const Index hidden = config.family == config::Family::gpt ? d.ffn : 2 * d.ffn;
    const Index layer = d.width * (d.qkv() + d.width + hidden + d.ffn);
    const double weights = static_cast<double>(d.layers * layer + d.vocab * d.width);
    const double attention = 6.0 * static_cast<double>(d.layers) * static_cast<double>(d.width) *
                             static_cast<double>(seq_len);
    return 6.0 * weights + attention;
}

}  // namespace scape::model
