#include <scape/config/launcher.hpp>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace scape::config {
namespace {

std::optional<long long> number(const Environment& get, const char* name) {
    const char* text = get(name);
    if (text == nullptr) {
        return std::nullopt;
    }
    long long value = 0;
    const char* end = text + std::strlen(text);
    const auto result = std::from_chars(text, end, value);
    return result.ec == std::errc() && result.ptr == end && value >= 0 ? std::optional(value)
                                                                       : std::nullopt;
}

/// Slurm numbers the steps that are not srun's (batch script, interactive shell, and the like)
/// downwards from 2^32.
bool in_srun_step(const Environment& get) {
    const auto step = number(get, "SLURM_STEP_ID");
    return step && *step < 0xffff0000LL;
}

}  // namespace

Launcher read_launcher(const Environment& get) {
    struct Names {
        const char* launcher;
        const char* rank;
        const char* ranks;
    };
    const Names candidates[] = {
        {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI", "PMI_RANK", "PMI_SIZE"},
        {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    };
    for (const Names& names : candidates) {
        const auto rank = number(get, names.rank);
        const auto ranks = number(get, names.ranks);
        if (rank && ranks && *ranks > *rank) {
            return {names.launcher, static_cast<int>(*rank), static_cast<int>(*ranks)};
        }
    }
    if (in_srun_step(get)) {
        const auto rank = number(get, "SLURM_PROCID");
        auto ranks = number(get, "SLURM_STEP_NUM_TASKS");
        ranks = ranks ? ranks : number(get, "SLURM_NTASKS");
        if (rank && ranks && *ranks > *rank) {
            return {"srun", static_cast<int>(*rank), static_cast<int>(*ranks)};
        }
    }
    if (const auto rank = number(get, "PMIX_RANK")) {
        return {"PMIx", static_cast<int>(*rank), -1};
    }
    return {};
}

int ranks_from_launcher() {
    return read_launcher(::getenv).ranks;
}
int rank_from_launcher() {
    return read_launcher(::getenv).rank;
}

}  // namespace scape::config
