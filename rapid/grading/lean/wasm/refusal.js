'use strict';
/** Refusals of author and judge, with their messages; and names as keys. */

const MESSAGES = { count: 5, characters: 500 };

/** Ends a check without a proof. `why` is a reason of verdicts.py, or 'bad statement'. */
class Refusal extends Error {
  constructor(why, messages = []) {
    super(why);
    this.why = why;
    this.messages = messages
      .slice(0, MESSAGES.count)
      .map((message) => message.slice(0, MESSAGES.characters));
  }
}

/** A text for each name, different for different names. */
const keyOf = (name) => JSON.stringify(name);

module.exports = { Refusal, keyOf };
