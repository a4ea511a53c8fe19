#pragma once
/// @file
/// From the deck to the exchange.

#include <scape/config/run_config.hpp>
#include <scape/optim/density.hpp>
#include <scape/optim/exchange.hpp>

namespace scape::train {

inline Index bucket_bytes(const config::RunConfig& config) {
    return static_cast<Index>(config.comm.bucket_mb * 1e6);
}

inline optim::Exchange::Options exchange_options(const config::RunConfig& config) {
    optim::Exchange::Options o;
    o.code = config.exchange.value_bits == 16 ? kernels::ValueCode::bf16 : kernels::ValueCode::fp32;
    if (config::is_sparse(config)) {
        o.rest = kernels::Rest::kept;
        o.largest_density = optim::largest_sparse_density(config);
    }
    return o;
}

}  // namespace scape::train
