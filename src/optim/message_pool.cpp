#include <scape/optim/message_pool.hpp>

namespace scape::optim {

//  | free | oldest ... newest | free |     or     | ... newest | free | oldest ... |
std::optional<Span<unsigned char>> MessagePool::take(Index bytes) {
    const Index size = round_up(bytes, alignment);
    Index begin = 0;
    if (!taken_.empty()) {
        const Index head = taken_.back().end;
        const Index tail = taken_.front().begin;
        const bool wrapped = taken_.back().begin < tail;
        if (wrapped) {
            begin = head;
            if (begin + size > tail) return {};
        } else if (head + size <= this->bytes()) {
            begin = head;
        } else if (size > tail) {
            return {};
        }
    }
    if (begin + size > this->bytes()) return {};
    taken_.push_back({begin, begin + size});
    return slice(memory_, begin, begin + bytes);
}

void MessagePool::free_oldest() {
    taken_.pop_front();
}

}  // namespace scape::optim
