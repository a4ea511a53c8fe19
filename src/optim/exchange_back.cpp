// New weights, or what the replicas lack of them, on the way back.
#include <scape/base/profiling.hpp>
#include <scape/optim/exchange.hpp>

namespace scape::optim {

using kernels::Position;

void Exchange::take_master(const Exec& exec) {
    if (!deltas()) return;
    for (int b = 0; b < sharding_.buckets(); ++b) {
        const Range piece = sharding_.shard_piece(b);
        Kokkos::deep_copy(exec, slice(master_, piece.begin, piece.end), own_weights(b));
    }
}

Weights Exchange::weights(const Exec& exec, int bucket) {
    Weights w;
    w.replica = bucket_of(parameters_, bucket);
    w.apart = deltas();
    const Range piece = sharding_.shard_piece(bucket);
    w.master = w.apart ? slice(master_, piece.begin, piece.end) : own_weights(bucket);
    Gather& g = gathering_[static_cast<std::size_t>(bucket)];
    g.unpacked = w.apart || !all_back();
    const Index part = g.unpacked ? deltas_.part_bytes(bucket) : 0;
    if (part == 0) return w;
    g.message = take(exec, comm_.size() * part);
    if (w.apart) return w;
    auto* const values = reinterpret_cast<float*>(g.message.data() + comm_.rank() * part);
    w.back = Span<float>(values, static_cast<std::size_t>(arriving_values(bucket)));
    return w;
}

void Exchange::gather_begin(const Exec& exec, const Arrived& arrived) {
    const int bucket = arrived.bucket;
    Gather& g = gathering_[static_cast<std::size_t>(bucket)];
    if (!g.unpacked) return gather_parameters(exec, bucket);
    if (bucket == 0) first_gather_ = 0;
    g.begun = true;
    if (g.message.extent(0) == 0) return;
    const bool news = all_back() || arrived.positions.extent(0) > 0;
    if (deltas() && news) {
        const Region region("scape::optim::pack");
        const Range piece = sharding_.shard_piece(bucket);
        const Index part = deltas_.part_bytes(bucket);
        kernels::pack_differences(exec, options_.deltas, deltas_.own(bucket, arrived.positions),
                                  slice(master_, piece.begin, piece.end), own_weights(bucket),
                                  all_back() ? 0 : own_origin(bucket),
                                  slice(g.message, comm_.rank() * part, (comm_.rank() + 1) * part));
    }
    g.pending = comm_.all_gather(exec, g.message);
}

void Exchange::gather_parameters(const Exec& exec, int bucket) {
    if (bucket == 0) first_gather_ = 0;
    Gather& g = gathering_[static_cast<std::size_t>(bucket)];
    g.begun = true;
    if (comm_.size() > 1) g.pending = comm_.all_gather(exec, bucket_of(parameters_, bucket));
}

/// Copies of the own part would be read with the others' layout, codes as scales: zeros are finite.
void Exchange::clear_parts_of_others(const Exec& exec, Span<unsigned char> message) const {
    const Index part = static_cast<Index>(message.extent(0)) / comm_.size();
    const Index mine = comm_.rank() * part;
    for (const Range r : {Range{0, mine}, Range{mine + part, comm_.size() * part}})
        Kokkos::deep_copy(exec, slice(message, r.begin, r.end), static_cast<unsigned char>(0));
}

void Exchange::finish_gather(const Exec& exec, int bucket) {
    Gather& g = gathering_[static_cast<std::size_t>(bucket)];
    wait(exec, g.pending);
    if (g.message.extent(0) > 0) {
        const Region region("scape::optim::unpack");
        if (comm_.silent()) clear_parts_of_others(exec, g.message);
        const Span<float> replica = bucket_of(parameters_, bucket);
        Span<const Position> positions;
        if (!all_back()) positions = elements_->positions(exec, bucket);
        if (deltas()) {
            kernels::add_values(exec, options_.deltas, deltas_.whole(bucket, positions), g.message,
                                1.f, replica);
        } else {
            const Span<const float> values(reinterpret_cast<float*>(g.message.data()),
                                           g.message.extent(0) / sizeof(float));
            const Index piece = static_cast<Index>(positions.extent(0)) / comm_.size();
            const Index mine = comm_.rank() * piece;  // which is in place since the update
            for (const Range r : {Range{0, mine}, Range{mine + piece, comm_.size() * piece}})
                kernels::unpack(exec, slice(values, r.begin, r.end),
                                slice(positions, r.begin, r.end), replica);
        }
        pool_.free_oldest();
    }
    g = Gather();
    first_gather_ = bucket + 1;
}

void Exchange::before_use(const Exec& exec, Index end) {
    while (first_gather_ < sharding_.buckets() && sharding_.bucket(first_gather_).begin < end &&
           gathering_[static_cast<std::size_t>(first_gather_)].begun)
        finish_gather(exec, first_gather_);
}

void Exchange::finish_gathers(const Exec& exec) {
    before_use(exec, sharding_.extent());
}

}  // namespace scape::optim
