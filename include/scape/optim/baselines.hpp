#pragma once
/// @file
/// The classical top-k baselines (algorithm section 3), in the same exchange as SCAPE so that
/// tables compare like with like. Both choose in the step itself, bucket by bucket as backward
/// finishes them, and leave every element to a dense optimizer at its owner:
///
///     topk_ef   (arXiv 1809.07599) rank i's own top k of |a_i| in every slice; positions and
///               values travel; ghat = (1/P) sum of what came
///     clt_k     (arXiv 2104.11125) the leader, rank t mod P, takes the top k of its |a| in every
///               slice and broadcasts the mask, blocking; all ranks send theirs

#include <scape/comm/communicator.hpp>
#include <scape/config/run_config.hpp>
#include <scape/optim/elements.hpp>

#include <memory>

namespace scape::optim {

/// elements: topk_ef or clt_k. All arguments must outlive it.
std::unique_ptr<Elements> make_baseline(config::Elements elements, comm::Communicator& comm,
                                        const FlatLayout& layout, const Sharding& sharding,
                                        const config::SparsitySection& sparsity,
                                        double largest_density);
/// Bytes that it will hold in device memory.
Index baseline_device_bytes(config::Elements elements, const FlatLayout& layout,
                            const Sharding& sharding, const config::SparsitySection& sparsity,
                            double largest_density);

}  // namespace scape::optim
