#pragma once
/// @file
/// A communicator without a network, to time what a rank does by itself.

#include <scape/comm/communicator.hpp>

namespace scape::comm {

/// Claims to be `rank` of `size` and hears nobody: whatever another rank would send is at once
/// there, as a copy of the caller's own piece, so that the work on it is a real run's (finite
/// values, masks as long as true ones) though the results mean nothing. Sums over ranks are `size`
/// times the caller's number; broadcasts and messages to one rank leave everything as it was.
/// Throws std::logic_error unless 0 <= rank < size, and on sizes that no communicator would take.
std::unique_ptr<Communicator> make_silent(int rank, int size);

}  // namespace scape::comm
