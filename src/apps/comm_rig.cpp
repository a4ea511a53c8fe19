#include "comm_rig.hpp"

#include "timing.hpp"

#include <scape/kernels/gemm.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace scape::apps {

namespace {

constexpr Index smallest = 1000;  // bytes of a buffer
constexpr Index growth = 4;
constexpr Index enough = 250'000;  // bytes of a buffer that gives a first bandwidth
constexpr int least_repeats = 3;
constexpr int most_repeats = 200;
constexpr int warm_up = 2;  // connections and staging are made, and the time is guessed

/// Pieces that are alike, and a whole number of the widest elements.
Index piece_of(Index buffer, int ranks) {
    constexpr Index granule = 8;
    return round_up((buffer + ranks - 1) / ranks, granule);
}

/// A square product, again and again.
struct Products {
    static constexpr Index n = exec_is_host ? 256 : 1024;
    Vec<float> a{"scape::apps::products_a", n* n};
    Vec<float> b{"scape::apps::products_b", n* n};
    Vec<float> c{"scape::apps::products_c", n* n};

    explicit Products(const Exec& exec) {
        Kokkos::deep_copy(exec, a, 1.f);
        Kokkos::deep_copy(exec, b, 1.f);
    }
    void run(const Exec& exec, int count) const {
        for (int i = 0; i < count; ++i)
            kernels::gemm<float>(exec, kernels::Op::none, kernels::Op::none, 1.f,
                                 as_matrix(a, n, n), as_matrix(b, n, n), 0.f, as_matrix(c, n, n));
        fence(exec, "scape::apps::products");
    }
};

}  // namespace

CommRig::CommRig(const Exec& exec, comm::Communicator& comm, Index largest_bytes)
    : exec_(exec),
      comm_(comm),
      largest_(largest_bytes),
      send_("scape::apps::send", comm.size() * piece_of(largest_bytes, comm.size())),
      received_("scape::apps::received", send_.extent(0)) {}

template <class Work>
double CommRig::once(const Work& work) {
    comm_.barrier();
    const Timer timer;
    work();
    fence(exec_, "scape::apps::comm_rig");
    return timer.seconds();
}

template <class... Work>
std::array<double, sizeof...(Work)> CommRig::times_of(double allowed, const Work&... work) {
    std::vector<double> seconds;  // (repeats, works)
    const auto turn = [&] { (seconds.push_back(once(work)), ...); };
    double guess = 0;
    for (int i = 0; i < warm_up; ++i) {
        seconds.clear();
        turn();
        guess = comm_.all_reduce_max(std::accumulate(seconds.begin(), seconds.end(), 0.0));
    }
    const int repeats = static_cast<int>(
        std::clamp<double>(allowed / guess - warm_up, least_repeats, most_repeats));
    seconds.clear();
    for (int i = 0; i < repeats; ++i) turn();
    std::vector<double> all;  // (P, repeats, works)
    comm_.all_gather_host(seconds, all).wait(exec_);
    for (std::size_t i = 0; i < all.size(); ++i) {
        double& longest = seconds[i % seconds.size()];
        longest = std::max(longest, all[i]);
    }
    std::array<double, sizeof...(Work)> medians;
    for (std::size_t w = 0; w < medians.size(); ++w) {
        std::vector<double> one;
        for (std::size_t i = w; i < seconds.size(); i += medians.size()) one.push_back(seconds[i]);
        medians[w] = median(one);
    }
    return medians;
}

template <class Begin>
std::vector<CommRow> CommRig::sweep(const std::string& name, double allowed, const Begin& begin) {
    std::vector<Index> sizes;
    for (Index bytes = smallest; bytes < largest_; bytes *= growth) sizes.push_back(bytes);
    // The last step may be short, but not so short that it says nothing new.
    if (sizes.size() > 1 && 2 * sizes.back() > largest_) sizes.pop_back();
    sizes.push_back(largest_);

    const Timer timer;
    std::vector<CommRow> rows;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const Index bytes = comm_.size() * piece_of(sizes[i], comm_.size());
        if (!rows.empty() && bytes == rows.back().buffer_bytes) continue;
        // Agreed, so that all ranks go on alike. Small messages say nothing of bandwidth, and so
        // nothing of how long larger ones take: some of those are timed in any case.
        const double left = allowed - comm_.all_reduce_max(timer.seconds());
        const double scale = rows.empty() ? 0 : double(bytes) / double(rows.back().buffer_bytes);
        const bool late =
            !rows.empty() && (warm_up + least_repeats) * scale * rows.back().seconds > left;
        if (late && rows.back().buffer_bytes >= enough) break;
        const double share = std::max(0.0, left) / static_cast<double>(sizes.size() - i);
        const auto [seconds] = times_of(share, [&] { begin(bytes).wait(exec_); });
        rows.push_back({name, bytes, bytes / comm_.size(), seconds});
    }
    return rows;
}

std::vector<CommRow> CommRig::all_to_all(double allowed) {
    return sweep("all_to_all", allowed, [&](Index bytes) {
        const Index others = bytes - bytes / comm_.size();
        return comm_.all_to_all(exec_, slice(send_, 0, bytes), slice(received_, 0, others));
    });
}

std::vector<CommRow> CommRig::all_gather(double allowed) {
    return sweep("all_gather", allowed,
                 [&](Index bytes) { return comm_.all_gather(exec_, slice(send_, 0, bytes)); });
}

std::vector<CommRow> CommRig::broadcast(double allowed) {
    auto rows = sweep("broadcast", allowed, [&](Index bytes) {
        return comm_.broadcast(exec_, slice(send_, 0, bytes), 0);
    });
    for (CommRow& row : rows) row.part_bytes = row.buffer_bytes;
    return rows;
}

CommRow CommRig::all_gather_host(double allowed) {
    const std::vector<double> mine(4, 1.0);
    std::vector<double> all;
    const auto [seconds] = times_of(allowed, [&] { comm_.all_gather_host(mine, all).wait(exec_); });
    const auto part = static_cast<Index>(mine.size() * sizeof(double));
    return {"all_gather_host", part * comm_.size(), part, seconds};
}

Overlapped CommRig::overlap(Index bytes, double allowed) {
    const Products products(exec_);
    const auto begin = [&] {
        const Index others = bytes - bytes / comm_.size();
        return comm_.all_to_all(exec_, slice(send_, 0, bytes), slice(received_, 0, others));
    };
    const auto transfer = [&] { begin().wait(exec_); };
    // A guess of the transfer, and then transfer, compute and both (as long as two).
    static_assert(transfers_of_overlap >= (warm_up + least_repeats) * (1 + 1 + 1 + 2));
    constexpr double share_of_guesses = 0.1;  // each of two
    const auto [one] = times_of(share_of_guesses * allowed, [&] { products.run(exec_, 1); });
    const auto [guess] = times_of(share_of_guesses * allowed, transfer);
    const int count = static_cast<int>(std::clamp(std::round(guess / one), 1.0, 1e6));
    const auto compute = [&] { products.run(exec_, count); };
    const auto both = [&] {
        comm::Pending pending = begin();
        compute();
        pending.wait(exec_);
    };
    const auto times = times_of((1 - 2 * share_of_guesses) * allowed, transfer, compute, both);
    return {times[0], times[1], times[2]};
}

double Overlapped::share() const {
    return std::clamp((transfer + compute - both) / std::min(transfer, compute), 0.0, 1.0);
}

NetworkFit fit_network(const std::vector<CommRow>& rows, int ranks) {
    Index least = rows.front().part_bytes;
    Index most = least;
    for (const CommRow& r : rows) {
        least = std::min(least, r.part_bytes);
        most = std::max(most, r.part_bytes);
    }
    const double messages = ranks - 1;
    std::vector<double> rates;
    for (const CommRow& r : rows)
        if (growth * r.part_bytes >= most)
            rates.push_back(messages * static_cast<double>(r.part_bytes) / r.seconds);
    const double lower_bound = median(rates);

    std::vector<double> latencies;
    for (const CommRow& r : rows)
        if (r.part_bytes <= growth * least)
            latencies.push_back(r.seconds / messages -
                                static_cast<double>(r.part_bytes) / lower_bound);
    NetworkFit fit;
    fit.latency = std::max(0.0, median(latencies));

    rates.clear();
    for (const CommRow& r : rows) {
        const double moving = r.seconds - messages * fit.latency;
        if (growth * r.part_bytes >= most && moving > 0)
            rates.push_back(messages * static_cast<double>(r.part_bytes) / moving);
    }
    fit.bandwidth = rates.empty() ? lower_bound : median(rates);
    return fit;
}

}  // namespace scape::apps
