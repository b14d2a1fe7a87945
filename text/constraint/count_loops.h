// Called by each loop of XGrammar, so that a budget can end the loop
// (text/constraint/work_budget.h).
#ifndef TANDEM_TEXT_CONSTRAINT_COUNT_LOOPS_H_
#define TANDEM_TEXT_CONSTRAINT_COUNT_LOOPS_H_

extern "C" {
extern __thread int tandem_loops_left;           // loops until the budget is checked
extern __thread const char* tandem_stack_limit;  // the lowest stack address that may be used
void tandem_look_at_budget();                    // throws WorkBudget::Spent if it is spent
}

inline void tandem_count_loop() {
  const char* const place = static_cast<const char*>(__builtin_frame_address(0));
  if (--tandem_loops_left < 0 || place < tandem_stack_limit) tandem_look_at_budget();
}

#endif  // TANDEM_TEXT_CONSTRAINT_COUNT_LOOPS_H_
