// The search reads "-" before a word as "without", and so finds nothing for "--keep-samples". Here it looks for what has
// all words of the option.
window.Worker = class extends window.Worker {
  postMessage(message, ...more) {
    if (typeof message?.data === "string") {
      const words = (match, before, name) => before + name.split("-").filter(Boolean).map((word) => `+${word}*`).join(" ");
      message = { ...message, data: message.data.replace(/(^|\s)--([\w-]+)/g, words) };
    }
    super.postMessage(message, ...more);
  }
};
