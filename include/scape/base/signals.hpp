#pragma once
/// @file
/// Signals that ask for a polite stop: SIGINT, SIGTERM, SIGUSR1.
///
/// They are taken by a thread that does nothing else, never by one that computes: oneDNN's
/// generated code (2.6.3 at least) keeps data further below the stack pointer than a signal's frame
/// spares, so that a handler run there, even an empty one, destroys it (seen as a corrupted heap).

namespace scape {

/// From here on the signals are noted; a second one ends the process at once (128 + its number).
/// Call it before any other thread is started, MPI's and OpenMP's too: they inherit that they do
/// not take these signals. Calling it again forgets what was noted.
void watch_stop_signals();

/// The signal that was received, or 0.
int stop_signal();

}  // namespace scape
