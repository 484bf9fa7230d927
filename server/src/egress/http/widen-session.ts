import type { Http2Session } from 'node:http2';

/**
 * What all streams of a session may send ahead. HTTP/2 begins with 64 KiB, which a stream alone would wait
 * for. Node gives it back as bytes arrive, whoever reads them, so that memory is bounded by each stream.
 */
const SESSION_WINDOW = 1024 * 1024;

/** A session that was destroyed says all the same that it has connected, and throws when it is changed. */
export function widenSession(session: Http2Session): void {
  if (!session.destroyed) session.setLocalWindowSize(SESSION_WINDOW);
}
