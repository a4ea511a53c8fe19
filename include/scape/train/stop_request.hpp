#pragma once
/// @file
/// Polite stops: a signal, a wall limit, or a file named STOP in the run directory. Each rank sees
/// its own request; the trainer carries the flag on the step's scalar exchange, so all agree.

#include <scape/base/profiling.hpp>

#include <string>

namespace scape::train {

class StopRequest {
   public:
    /// Signals count if watch_stop_signals() was called. An empty run_dir looks for no file (one
    /// rank looking is enough, and kind to a shared file system). `wall_limit_seconds` counts from
    /// here; 0 = none.
    StopRequest(const std::string& run_dir, double wall_limit_seconds);

    /// True when this rank should ask for a stop after the current step. `save_seconds`: what the
    /// last checkpoint took; the wall limit keeps three times that and some seconds in hand.
    bool wanted(double save_seconds);
    /// Why, for the log: "signal 15", "wall limit of 60 s", "file runs/x/STOP".
    const std::string& reason() const { return reason_; }
    /// Removes the STOP file once it has been obeyed, so that the next start is not stopped by it.
    void obeyed() const;

   private:
    std::string stop_file_;
    double wall_limit_seconds_;
    Timer since_start_;
    std::string reason_;
};

}  // namespace scape::train
