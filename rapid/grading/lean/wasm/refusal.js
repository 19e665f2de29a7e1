'use strict';
/** Refusals by author and judge, and keys for names. */

const MESSAGES = { count: 5, characters: 500 }; // maximum number, and length of each

/** Thrown when something is refused. `why` is a reason of verdicts.py, or 'bad statement'. */
class Refusal extends Error {
  constructor(why, messages = []) {
    super(why);
    this.why = why;
    this.messages = messages
      .slice(0, MESSAGES.count)
      .map((message) => message.slice(0, MESSAGES.characters));
  }
}

/** Return a text for a name (a list of components), different for different names. */
const keyOf = (name) => JSON.stringify(name);

module.exports = { Refusal, keyOf };
