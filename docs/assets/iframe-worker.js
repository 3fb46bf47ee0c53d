// Browsers start no worker from file://. The site's search then runs in a hidden frame with the same interface.
if (location.protocol === "file:") {
  window.IFrameWorker = class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = frame.contentWindow;
      inner.document.open();
      inner.document.write(
        "<html><body><script>" +
          "self.postMessage = (data) => parent.dispatchEvent(new MessageEvent('headrace-worker', { data }));" +
          "self.importScripts = (...urls) => urls.reduce((done, url) => done.then(() => new Promise((ok, fail) => {" +
          "  const script = document.createElement('script');" +
          "  script.src = url; script.onload = ok; script.onerror = fail;" +
          "  document.body.appendChild(script);" +
          "})), Promise.resolve());" +
          "</" + "script><script src=\"" + new URL(url, location.href) + "\"></" + "script></body></html>"
      );
      inner.document.close();
      this.inner = inner;
      window.addEventListener("headrace-worker", ({ data }) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      });
      this.loaded = new Promise((ready) => frame.addEventListener("load", ready, { once: true }));
    }
    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
