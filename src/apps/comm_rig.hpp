#pragma once
/// @file
/// Times of the program's collectives, on buffers where a step has its own.

#include <scape/base/fence.hpp>
#include <scape/base/profiling.hpp>
#include <scape/comm/communicator.hpp>

#include <array>
#include <string>
#include <vector>

namespace scape::apps {

/// A collective of one size: P-1 messages of `part_bytes` leave a rank (of a broadcast: the root).
struct CommRow {
    std::string collective;
    Index buffer_bytes = 0;  ///< the whole buffer
    Index part_bytes = 0;
    double seconds = 0;
};

/// What a network gives one rank: a collective takes (P-1) (latency + part_bytes / bandwidth).
struct NetworkFit {
    double latency = 0;    ///< seconds
    double bandwidth = 0;  ///< bytes per second
};
/// Latency from the smallest messages, bandwidth from the largest: medians, because those between
/// follow neither (a library changes its protocol there). Rows of P >= 2 ranks, at least one.
NetworkFit fit_network(const std::vector<CommRow>& rows, int ranks);

/// Both at once against each alone, in seconds.
struct Overlapped {
    double transfer = 0;
    double compute = 0;
    double both = 0;
    /// [0, 1] share of the shorter one that is hidden behind the other.
    double share() const;
};

class CommRig {
   public:
    /// Collectives of up to `largest_bytes`. `exec` and `comm` must outlive it.
    CommRig(const Exec& exec, comm::Communicator& comm, Index largest_bytes);

    std::vector<CommRow> all_to_all(double allowed);
    std::vector<CommRow> all_gather(double allowed);
    std::vector<CommRow> broadcast(double allowed);
    /// The sums of a few numbers.
    CommRow all_gather_host(double allowed);

    /// An all_to_all of `bytes` (of the whole buffer), and matrix products that take as long.
    Overlapped overlap(Index bytes, double allowed);
    /// How long that takes at least, in times of its all_to_all.
    static constexpr double transfers_of_overlap = 25;

    Index largest() const { return largest_; }  ///< bytes

    /// `mine` of the rank that has least.
    double least(double mine) { return -comm_.all_reduce_max(-mine); }

   private:
    /// Sizes from small to large; those that would take longer than the seconds `allowed` are left
    /// out. begin(buffer bytes) gives a Pending.
    template <class Begin>
    std::vector<CommRow> sweep(const std::string& name, double allowed, const Begin& begin);
    /// Of each work the median over repeats of the longest time of a rank, all of which begin
    /// together. Works take turns, so that what disturbs the machine for a while disturbs all.
    template <class... Work>
    std::array<double, sizeof...(Work)> times_of(double allowed, const Work&... work);
    template <class Work>
    double once(const Work& work);

    const Exec& exec_;
    comm::Communicator& comm_;
    Index largest_;
    Vec<char> send_;      // (largest)
    Vec<char> received_;  // (largest)
};

}  // namespace scape::apps
