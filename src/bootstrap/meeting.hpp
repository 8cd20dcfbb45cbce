// SPDX-License-Identifier: Apache-2.0
// Meeting: the living ranks of a failed comm come together, under the lowest of them, and are counted.
//
//   rank r calls            the lowest rank that is not known dead; if that is silent for a moment, the next as well,
//                           and so on up to itself
//   refused                 its process has ended: it is dead
//   silent                  stopped, cut off, or not in the meeting yet: the call stays open. If it comes, it answers
//                           all who have called; if its process ends, the kernel hangs up
//   accepted                that one leads, and r waits for its word
//
// A call begins with the greeting (greeting.hpp), so that only ranks that know the job's secret, if it has one, and
// this comm's session get in.
//
// Who is accepted by nobody below leads: accepts who calls, calls those above that don't come by themselves (only to
// learn whether they are dead), and decides as soon as every rank has come or is dead. At the deadline, the earliest of
// those who have come, silent ranks are left out, if the quorum allows it:
//
//   all ranks     [0 1 2 3 4 5 6 7]     come: more than half, or half of them with rank 0; else nobody goes on
//
// Members are then joined as any store is (store_wire.hpp), with the leader as rank 0. If one of them dies before their
// comm is made, they meet again. Those that were left out find the word that the others went on in the calls that wait
// for them.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/greeting.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/store_wire.hpp"

namespace mxs {

// May a leader have sent this? Ranks of the failed comm, each once, ascending, the leader first, this one among them.
bool is_list_of_living(const std::vector<int> &members, int leader, int own_rank, int rank_count);

class Meeting {
 public:
  // The rendezvous must outlive it.
  Meeting(const Rendezvous &rendezvous, uint64_t deadline_ns);
  ~Meeting();

  // Until the members are known; may be repeated. members: of the failed comm, ascending, this rank included; peers: as
  // make_store_bootstrap wants them. MXS_TIMED_OUT names who hasn't come; MXS_PEER_FAILED: the others have gone on.
  mxs_status gather(std::vector<int> *members, std::vector<std::unique_ptr<Peer>> *peers);
  // The members have their comm: tells those that are left out.
  void close();

 private:
  struct Call;

  bool leads() const { return leader_ == rendezvous_.rank(); }
  mxs_status turn();
  void wait_for_event(uint64_t at_most_ns);
  mxs_status admit(Stranger &stranger);
  mxs_status hear_arrivals();
  mxs_status hear_come();
  mxs_status hear_calls();
  mxs_status hear_call(int rank);
  mxs_status heed_failure(const Frame &frame, const std::vector<std::byte> &payload) const;
  mxs_status call_lower();
  mxs_status call_higher();
  mxs_status call(int rank);
  void connected(int rank);
  void greeted(int rank);
  bool hear_greeting(int rank, const Frame &frame, const std::vector<std::byte> &payload);
  void hang_up(int rank, uint64_t pause_ns);
  bool is_silent(int rank) const;
  std::vector<int> awaited() const;
  bool has_quorum() const;
  mxs_status give_up(mxs_status status);
  mxs_status decide(std::vector<int> *members, std::vector<std::unique_ptr<Peer>> *peers, bool *decided);
  mxs_status take_word(std::vector<int> *members, std::vector<std::unique_ptr<Peer>> *peers);

  const Rendezvous &rendezvous_;
  const uint64_t begin_ns_, own_deadline_ns_;
  uint64_t deadline_ns_;                        // of all who have come
  int leader_;                                  // of those known to be in the meeting, the lowest
  Doorway doorway_;
  std::vector<std::unique_ptr<Peer>> arrivals_;  // have greeted, but not said what for
  std::vector<std::unique_ptr<Peer>> come_;      // by rank: those who follow this one
  std::vector<Call> calls_;                      // by rank
  std::vector<int> members_;                     // the leader's word, and who gave it
  int word_from_ = -1;
  uint64_t came_up_ns_ = 0;                      // since when nobody below is known to be in the meeting; 0: not so
};

}  // namespace mxs
