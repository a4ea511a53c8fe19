#pragma once
/// @file
/// Sizes and work of a model, from its shape alone.

#include <scape/base/types.hpp>
#include <scape/config/run_config.hpp>

namespace scape::model {

/// Logical parameters: padding is not counted, a tied head is counted once.
Index parameter_count(const config::ModelConfig& config);

/// Floating-point operations of the matrix products of forward and backward for one token of a
/// sequence of seq_len: 6 for each weight of a product (2 forward, 4 backward; the head counts,
/// tied or not, the embedding look-up does not), and 6 L C T for causal attention (scores and
/// values, 4 T C / 2 forward and twice that backward). Counted as in PaLM, arXiv 2204.02311
/// appendix B, causal; recomputation is not counted.
double flops_per_token(const config::ModelConfig& config, Index seq_len);

}  // namespace scape::model
