#pragma once
/// @file
/// What a run says: metrics.jsonl (one record a step), log.txt, and lines on the terminal.
/// Only rank 0 makes one of these with `speak` true; everywhere else every call is silent.

#include <scape/base/profiling.hpp>
#include <scape/base/types.hpp>
#include <scape/comm/communicator.hpp>
#include <scape/io/buffer_store.hpp>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace scape::train {

/// One step's record. Bytes are this rank's (0's), sent to other ranks.
struct StepRecord {
    Index step = 0;
    double loss = 0;  ///< nats per unmasked token of the global batch
    double lr = 0;
    double grad_norm = 0;   ///< before the clip
    Index tokens = 0;       ///< seen by the run so far, this step included
    Index step_tokens = 0;  ///< of this step, over all ranks
    double seconds = 0;
    double wait_seconds = 0;  ///< of these, blocked on communication
    std::vector<comm::Traffic> traffic;
    double density = 1;                             ///< fraction of the gradient that travelled
    double mask_wait_seconds = 0;                   ///< blocked because the mask was not here yet
    std::optional<io::BufferStore::Cost> feedback;  ///< of error feedback outside the gradients
    std::optional<double> feedback_norm;            ///< of what the ranks keep
    std::optional<double> mask_overlap;  ///< share of the next mask that is in this step's too
    std::optional<double> fill_in;       ///< topk_ef: share of the elements that some rank sent
    Index feedback_lost = 0;  ///< ranks whose fused error feedback a skipped step has cost
    Index memory_bytes = 0;   ///< device memory in Views of this rank
    std::optional<double> valid_loss;
    std::uint64_t data_hash = 0;  ///< of the global batch's samples; the same for every split
    bool skipped = false;         ///< non-finite gradient or loss: nothing was updated

    Index bytes_sent() const;
};

class RunLog {
   public:
    RunLog() = default;  ///< silent
    /// Opens `dir`/metrics.jsonl and log.txt for appending. Records of steps after `resumed_step`
    /// are cut off first: they will be written again. A fresh start moves an older file to
    /// metrics.previous-1.jsonl, -2, ...
    RunLog(const std::string& dir, Index resumed_step);

    /// A line in log.txt and on the terminal.
    void say(const std::string& line);
    /// The step's record, and a progress line: rewritten in place on a terminal; on a pipe at most
    /// one line every few seconds. `last_step`, `flops_per_token` and `peak_flops` (of all ranks; 0
    /// = unknown) are for ETA and MFU.
    void record(const StepRecord& r, Index last_step, double flops_per_token, double peak_flops);

   private:
    void print_line(const std::string& line);

    struct Close {
        void operator()(std::FILE* f) const { std::fclose(f); }
    };
    std::unique_ptr<std::FILE, Close> metrics_;
    std::unique_ptr<std::FILE, Close> log_;
    bool speak_ = false;
    bool terminal_ = false;
    bool line_open_ = false;  // a progress line without its newline stands on the terminal
    Index first_step_ = 0;
    double next_plain_line_ = 0;
    double smooth_seconds_ = 0;  // per step, for the ETA
    Timer since_open_;
};

/// "1h02m", "3m20s", "12.5s"
std::string short_duration(double seconds);

}  // namespace scape::train
