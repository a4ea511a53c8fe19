#include <scape/train/cost_model.hpp>

#include <algorithm>
#include <cmath>
#include <deque>

namespace scape::train {

namespace {

using config::Machine;

/// One message after another, in order: all that is begun ends at a known amount of work, and what
/// the network has done of it is one number. Seconds at full rate.
class Network {
   public:
    double begin(double seconds) {
        begun_ += seconds;
        return begun_;
    }
    void advance(double seconds) { done_ = std::min(begun_, done_ + seconds); }
    double left(double end) const { return std::max(0.0, end - done_); }
    double begun() const { return begun_; }

   private:
    double begun_ = 0;
    double done_ = 0;
};

/// The rank's time line, call by call what Trainer, ShardedOptimizer and Exchange do.
class Simulation {
   public:
    Simulation(const StepWork& work, const Machine& machine)
        : w_(work),
          machine_(machine),
          flops_per_second_(machine.peak_tflops * 1e12 * machine.efficiency),
          bytes_per_second_(machine.memory_gb_per_s * 1e9 / machine.local_work),
          scalar_(collective_seconds(machine, work.ranks, 0)),
          gathers_(work.buckets.size()),
          first_gather_(gathers_.size()) {}

    /// Step after step, until one is like the one before.
    StepPrediction steady() {
        constexpr int most = 20;
        constexpr double alike = 1e-9;
        StepPrediction last = step();
        for (int i = 1; i < most; ++i) {
            const StepPrediction next = step();
            const bool same = std::abs(next.seconds - last.seconds) <= alike * next.seconds;
            last = next;
            if (same) break;
        }
        return last;
    }

   private:
    struct Message {
        std::size_t bucket;
        double end;
    };
    struct Gather {
        double end = 0;
        bool begun = false;
    };

    StepPrediction step() {
        now_ = {};
        const double wire = network_.begun();
        local(w_.clear);
        now_.wire += scalar_;  // how many targets count: hidden behind the first forward pass
        for (Index m = 0; m < w_.micro_batches; ++m) {
            const bool last = m + 1 == w_.micro_batches;
            forward();
            if (m == 0) wait(scalar_ - machine_.overlap * now_.seconds);
            if (w_.fused) local(w_.check);
            if (w_.fused && last) agree();
            backward(last);
        }
        while (!reducing_.empty()) finish_oldest();
        agree();
        for (std::size_t b = 0; b < w_.buckets.size(); ++b) update(b);
        local(w_.keep);
        for (const StepWork::Bucket& b : w_.buckets) local(b.select);
        if (w_.mask > 0) mask_end_ = begin(w_.mask);
        now_.wire += network_.begun() - wire;
        return now_;
    }

    Index groups_end(std::size_t group) const {
        return group + 1 < w_.groups.size() ? w_.groups[group + 1] : w_.buckets.back().begin + 1;
    }
    std::size_t layers() const { return w_.groups.size() - (w_.tied ? 2 : 3); }

    // Weights are awaited group by group.
    void forward() {
        before_use(groups_end(0));
        for (std::size_t l = 0; l < layers(); ++l) {
            before_use(groups_end(1 + l));
            compute(w_.layer_flops);
        }
        before_use(groups_end(1 + layers()));
    }

    // The head's forward and backward are one pass; only then a tied head's weights are complete,
    // and their gradient with that of the embedding, at the very end.
    void backward(bool last) {
        finish_gathers();
        compute(w_.head_flops);
        if (last && !w_.tied) gradients_final(w_.groups.back());
        if (last) gradients_final(w_.groups[1 + layers()]);
        for (std::size_t l = layers(); l-- > 0;) {
            if (l + 1 < layers()) compute(w_.recompute_flops);
            compute(2 * w_.layer_flops);
            if (last) gradients_final(w_.groups[1 + l]);
        }
        if (last) gradients_final(0);
    }

    void gradients_final(Index first) {
        for (; unsent() > 0 && w_.buckets[unsent() - 1].begin >= first; ++sent_) {
            if (sent_ == 0) {
                finish_gathers();
                wait(network_.left(mask_end_));
            }
            send(unsent() - 1);
        }
        if (first == 0) sent_ = 0;  // all of them: the next step begins anew
    }
    std::size_t unsent() const { return w_.buckets.size() - sent_; }

    void send(std::size_t bucket) {
        const StepWork::Bucket& b = w_.buckets[bucket];
        take(b.pooled_there);
        for (int i = 0; i < b.broadcasts; ++i) wait(network_.left(begin(b.broadcast)));
        local(b.send);
        reducing_.push_back({bucket, begin(b.there)});
    }

    void finish_oldest() {
        const Message oldest = reducing_.front();
        reducing_.pop_front();
        wait(network_.left(oldest.end));
        local(w_.buckets[oldest.bucket].sum);
        taken_ -= w_.buckets[oldest.bucket].pooled_there;
    }

    void update(std::size_t bucket) {
        const StepWork::Bucket& b = w_.buckets[bucket];
        take(b.pooled_back);
        local(b.update);
        gathers_[bucket] = {begin(b.back), true};
        if (bucket == 0) first_gather_ = 0;
    }

    void finish_gather() {
        Gather& g = gathers_[first_gather_];
        wait(network_.left(g.end));
        local(w_.buckets[first_gather_].unpack);
        taken_ -= w_.buckets[first_gather_].pooled_back;
        g.begun = false;
        ++first_gather_;
    }
    bool gathering() const {
        return first_gather_ < gathers_.size() && gathers_[first_gather_].begun;
    }
    void before_use(Index end) {
        while (gathering() && w_.buckets[first_gather_].begin < end) finish_gather();
    }
    void finish_gathers() {
        while (gathering()) finish_gather();
    }

    // Room for messages is bounded: the oldest are finished until there is some.
    void take(Index bytes) {
        while (taken_ + bytes > w_.pool && (!reducing_.empty() || gathering())) {
            if (!reducing_.empty()) {
                finish_oldest();
            } else {
                finish_gather();
            }
        }
        taken_ += bytes;
    }

    // A few numbers of all ranks; they pass by what is under way.
    void agree() {
        now_.wire += scalar_;
        wait(scalar_);
    }

    double begin(Index part_bytes) {
        return network_.begin(part_bytes > 0 ? collective_seconds(machine_, w_.ranks, part_bytes)
                                             : 0);
    }
    void wait(double seconds) {
        if (seconds <= 0) return;
        now_.wait += seconds;
        now_.seconds += seconds;
        network_.advance(seconds);
    }
    void busy(double seconds) {
        now_.seconds += seconds;
        network_.advance(machine_.overlap * seconds);
    }
    void compute(double flops) {
        now_.compute += flops / flops_per_second_;
        busy(flops / flops_per_second_);
    }
    void local(double bytes) {
        now_.local += bytes / bytes_per_second_;
        busy(bytes / bytes_per_second_);
    }

    const StepWork& w_;
    const Machine machine_;
    const double flops_per_second_;
    const double bytes_per_second_;
    const double scalar_;  // seconds of a collective of a few numbers
    Network network_;
    StepPrediction now_;
    std::deque<Message> reducing_;  // oldest first
    std::vector<Gather> gathers_;   // by bucket
    std::size_t first_gather_;      // buckets before it have arrived
    std::size_t sent_ = 0;          // buckets, from the last on
    double mask_end_ = 0;
    Index taken_ = 0;  // of the pool
};

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    const std::size_t middle = v.size() / 2;
    return v.size() % 2 == 1 ? v[middle] : (v[middle - 1] + v[middle]) / 2;
}

}  // namespace

double collective_seconds(const Machine& machine, int ranks, Index part_bytes) {
    return (ranks - 1) * (1e-6 * machine.latency_us +
                          static_cast<double>(part_bytes) / (1e9 * machine.network_gb_per_s));
}

StepPrediction predict_step(const StepWork& work, const Machine& machine) {
    StepPrediction p = Simulation(work, machine).steady();
    p.bytes_sent = work.bytes_sent;
    p.memory = work.memory;
    return p;
}

StepPrediction predict_step(const config::RunConfig& config, int ranks, const Machine& machine) {
    return predict_step(step_work(config, ranks), machine);
}

Machine calibrate(Machine machine, const std::vector<MeasuredStep>& steps) {
    std::vector<double> efficiency;
    std::vector<double> local_work;
    for (const MeasuredStep& m : steps) {
        const StepWork work = step_work(m.config, m.ranks);
        efficiency.push_back(work.flops() / (1e12 * machine.peak_tflops) / m.compute_seconds);
        const double copies = work.local_bytes() / (1e9 * machine.memory_gb_per_s);
        if (m.local_seconds) local_work.push_back(*m.local_seconds / copies);
    }
    if (!efficiency.empty()) machine.efficiency = median(efficiency);
    if (!local_work.empty()) machine.local_work = median(local_work);
    // Only their product counts; a peak that was measured in a bad moment is too low.
    machine.peak_tflops *= std::max(1.0, machine.efficiency);
    machine.efficiency = std::min(1.0, machine.efficiency);
    return machine;
}

}  // namespace scape::train
