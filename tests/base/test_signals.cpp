#include "support/catch.hpp"

#include <scape/base/signals.hpp>

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

using namespace scape;

TEST_CASE("a signal is noted, and never by a thread that computes") {
    watch_stop_signals();
    CHECK(stop_signal() == 0);
    const auto blocked_here = [] {
        sigset_t mask;
        pthread_sigmask(SIG_BLOCK, nullptr, &mask);
        return sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) &&
               sigismember(&mask, SIGUSR1);
    };
    CHECK(blocked_here());
    bool blocked_in_new_thread = false;
    std::thread([&] { blocked_in_new_thread = blocked_here(); }).join();
    CHECK(blocked_in_new_thread);

    for (const int number : {SIGUSR1, SIGTERM, SIGINT}) {
        watch_stop_signals();
        kill(getpid(), number);
        for (int i = 0; i < 200 && stop_signal() == 0; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        CHECK(stop_signal() == number);
    }
    watch_stop_signals();
}
