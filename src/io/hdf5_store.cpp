#include "hdf5_store.hpp"

#include <scape/base/fence.hpp>

#include <algorithm>
#include <csignal>
#include <stdexcept>

namespace scape::io {
namespace {

Index largest(const std::vector<Index>& chunks) {
    return chunks.empty() ? 0 : *std::max_element(chunks.begin(), chunks.end());
}

/// A thread that takes no signals: those of the program are others' business, and a write beyond a
/// file size limit (SIGXFSZ) must fail, not kill.
template <class Work>
std::thread quiet_thread(Work&& work) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    try {
        thread = std::thread(std::forward<Work>(work));
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

/// Waits for what was queued on a device; a host's kernels are done when they return.
void settle(std::optional<Exec>& exec) {
    if constexpr (!exec_is_host) {
        if (exec) fence(*exec, "scape::io::staging");
    }
    exec.reset();
}

}  // namespace

Hdf5Store::Hdf5Store(const std::vector<Index>& chunks, const std::string& directory, int rank)
    : chunks_(chunks) {
    const auto buffer = [&] {
        return Buffer(
            Kokkos::view_alloc(std::string("scape::io::hdf5_store"), Kokkos::WithoutInitializing),
            static_cast<std::size_t>(largest(chunks)));
    };
    for (Slot& slot : slots_) slot.values = buffer();
    if constexpr (!exec_is_host) {
        for (Staging& staging : staging_) staging.values = buffer();
    }
    thread_ = quiet_thread([this, directory, rank] { run(directory, rank); });
    Guard guard(mutex_);
    done_.wait(guard, [&] { return open_ || error_; });
    if (!error_) return;
    guard.unlock();
    thread_.join();
    throw user_error(*error_);
}

Hdf5Store::~Hdf5Store() {
    {
        const Guard guard(mutex_);
        stop_ = true;
    }
    work_.notify_all();
    thread_.join();
}

// --- The caller -------------------------------------------------------------------------------

void Hdf5Store::rethrow(const Guard&) const {
    if (error_) throw user_error(*error_);
}

template <class Done>
void Hdf5Store::wait(Guard& guard, const Done& done) {
    const Timer timer;
    done_.wait(guard, [&] { return error_ || done(); });
    cost_.waited_seconds += timer.seconds();
    rethrow(guard);
}

Hdf5Store::Slot* Hdf5Store::slot_of(int chunk) {
    for (Slot& slot : slots_) {
        if (slot.state != Slot::idle && slot.chunk == chunk) return &slot;
    }
    return nullptr;
}

void Hdf5Store::request(Slot& slot, int chunk) {
    slot.chunk = chunk;
    slot.state = Slot::wanted;
    work_.notify_all();
}

void Hdf5Store::read_ahead() {
    for (Slot& slot : slots_) {
        while (!expected_.empty() && slot_of(expected_.front())) expected_.pop_front();
        if (expected_.empty()) return;
        if (slot.state != Slot::idle) continue;
        request(slot, expected_.front());
        expected_.pop_front();
    }
}

/// A slot for a chunk that comes out of turn.
Hdf5Store::Slot& Hdf5Store::claim(Guard& guard) {
    const auto in = [&](auto... states) -> Slot* {
        for (Slot& slot : slots_) {
            if (((slot.state == states) || ...)) return &slot;
        }
        return nullptr;
    };
    if (Slot* slot = in(Slot::idle)) return *slot;
    wait(guard, [&] { return in(Slot::ready, Slot::wanted) != nullptr; });
    Slot& slot = *in(Slot::ready, Slot::wanted);
    expected_.push_front(slot.chunk);  // it is still expected
    return slot;
}

void Hdf5Store::expect(const std::vector<int>& chunks) {
    Guard guard(mutex_);
    rethrow(guard);
    expected_.assign(chunks.begin(), chunks.end());
    const auto soon = expected_.begin() + std::min<std::size_t>(slots, expected_.size());
    for (Slot& slot : slots_) {
        const bool needed = std::find(expected_.begin(), soon, slot.chunk) != soon;
        const bool held = slot.state == Slot::ready || slot.state == Slot::wanted;
        if (held && !needed) slot.state = Slot::idle;
        slot.unused = !needed;
    }
    read_ahead();
}

void Hdf5Store::add_to(const Exec& exec, int chunk, Span<float> values) {
    check_chunk(chunks_, chunk, values.extent(0));
    Guard guard(mutex_);
    rethrow(guard);
    Slot* slot = slot_of(chunk);
    if (slot == nullptr) {
        const auto turn = std::find(expected_.begin(), expected_.end(), chunk);
        if (turn != expected_.end()) expected_.erase(turn);
        slot = &claim(guard);
        request(*slot, chunk);
    }
    slot->unused = false;
    wait(guard, [&] { return slot->state == Slot::ready; });
    slot->state = Slot::used;
    guard.unlock();

    const Timer timer;
    add_stored(exec, values, slot->values.data());
    const double seconds = timer.seconds();

    guard.lock();
    cost_.seconds += seconds;
    cost_.waited_seconds += seconds;
    if constexpr (!exec_is_host) slot->user = exec;
    slot->state = Slot::idle;
    read_ahead();
}

void Hdf5Store::write(const Exec& exec, int chunk, Span<const float> values) {
    check_chunk(chunks_, chunk, values.extent(0));
    Guard guard(mutex_);
    rethrow(guard);
    Write write{chunk, values.data(), -1, {}};
    if constexpr (!exec_is_host) {
        const auto free = [&] {
            return std::find_if(staging_.begin(), staging_.end(),
                                [](const Staging& s) { return s.free; });
        };
        wait(guard, [&] { return free() != staging_.end(); });
        Staging& staging = *free();
        staging.free = false;
        write.values = staging.values.data();
        write.staging = static_cast<int>(&staging - staging_.data());
        write.source = exec;
        Kokkos::deep_copy(exec, slice(staging.values, 0, chunks_[chunk]), values);
    }
    // What was read ahead of this chunk is not what it holds any more.
    if (Slot* slot = slot_of(chunk)) {
        if (slot->state == Slot::ready) slot->state = Slot::wanted;
        if (slot->state == Slot::reading) slot->again = true;
    }
    writes_.push_back(std::move(write));
    work_.notify_all();
}

void Hdf5Store::finish(const Exec&) {
    Guard guard(mutex_);
    wait(guard, [&] { return writes_.empty(); });
}

BufferStore::Cost Hdf5Store::cost() const {
    const Guard guard(mutex_);
    return cost_;
}

void Hdf5Store::reset_cost() {
    const Guard guard(mutex_);
    cost_ = {};
}

Index Hdf5Store::host_bytes(const std::vector<Index>& chunks) {
    const Index buffers = slots + (exec_is_host ? 0 : staging_buffers);
    return buffers * largest(chunks) * static_cast<Index>(sizeof(float));
}

// --- The thread -------------------------------------------------------------------------------

void Hdf5Store::run(const std::string& directory, int rank) {
    std::optional<user_error> error;
    try {
        ScratchFile file(directory, rank, chunks_);
        {
            const Guard guard(mutex_);
            path_ = file.path();
            open_ = true;
        }
        done_.notify_all();
        serve(file);
        return;
    } catch (const user_error& e) {
        error = e;
    } catch (const std::bad_alloc&) {
        error = user_error(ExitCode::resources, "error_feedback: out of memory");
    } catch (const std::exception& e) {
        error = user_error(ExitCode::fault, std::string("error_feedback: ") + e.what());
    }
    const Guard guard(mutex_);
    error_ = error;
    done_.notify_all();
}

void Hdf5Store::serve(ScratchFile& file) {
    Guard guard(mutex_);
    while (true) {
        work_.wait(guard, [&] { return stop_ || next_read() || !writes_.empty(); });
        if (stop_) return;
        if (Slot* slot = next_read()) {
            read(file, *slot, guard);
        } else {
            write(file, guard);
        }
        done_.notify_all();
    }
}

/// A slot that waits to be read, and no write of its chunk is under way.
Hdf5Store::Slot* Hdf5Store::next_read() {
    for (Slot& slot : slots_) {
        if (slot.state != Slot::wanted) continue;
        const auto same = [&](const Write& w) { return w.chunk == slot.chunk; };
        if (std::none_of(writes_.begin(), writes_.end(), same)) return &slot;
    }
    return nullptr;
}

void Hdf5Store::read(ScratchFile& file, Slot& slot, Guard& guard) {
    slot.state = Slot::reading;
    slot.again = slot.unused = false;
    guard.unlock();
    settle(slot.user);
    const Timer timer;
    file.read(slot.chunk, slot.values.data());
    const double seconds = timer.seconds();
    guard.lock();
    count(slot.chunk, seconds);
    slot.state = slot.unused ? Slot::idle : slot.again ? Slot::wanted : Slot::ready;
    if (slot.state == Slot::idle) read_ahead();
}

void Hdf5Store::write(ScratchFile& file, Guard& guard) {
    Write& write = writes_.front();  // stays there meanwhile: others are added behind it
    guard.unlock();
    settle(write.source);
    const Timer timer;
    file.write(write.chunk, write.values);
    const double seconds = timer.seconds();
    guard.lock();
    count(write.chunk, seconds);
    if (write.staging >= 0) staging_[write.staging].free = true;
    writes_.pop_front();
}

void Hdf5Store::count(int chunk, double seconds) {
    cost_.bytes += static_cast<double>(chunks_[chunk]) * sizeof(float);
    cost_.seconds += seconds;
}

std::unique_ptr<BufferStore> make_hdf5_store(const std::vector<Index>& chunks,
                                             const std::string& directory, int rank) {
    return std::make_unique<Hdf5Store>(chunks, directory, rank);
}

}  // namespace scape::io
