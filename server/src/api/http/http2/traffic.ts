/**
 * What a connection of HTTP/2 has sent, and what for. Frames that are neither requests nor bodies cost the
 * sender nothing and are never answered with anything that could be limited: empty frames, priorities, window
 * updates, settings, unknown kinds. So their bytes are bounded by those that are of use.
 */
export interface Traffic {
  readonly startedAt: number;
  streams: number;
  /** Of bodies, as they were read. */
  bodyBytes: number;
}

/** The library holds that much of a body back until it is read. */
const FREE_BYTES = 64 * 1024;
const BYTES_OF_STREAM = 20 * 1024;
/** A frame for every byte has nine more. */
const BYTES_FOR_BODY = 16;
const FREE_BYTES_A_SECOND = 1024;

export function newTraffic(): Traffic {
  return { startedAt: performance.now(), streams: 0, bodyBytes: 0 };
}

/** Whether more came in than the requests, bodies and answers of the connection explain. */
export function isFlood(traffic: Traffic, bytes: { read: number; written: number }): boolean {
  const seconds = (performance.now() - traffic.startedAt) / 1000;
  const explained =
    FREE_BYTES +
    FREE_BYTES_A_SECOND * seconds +
    (BYTES_OF_STREAM + WINDOW_BYTES) * traffic.streams +
    BYTES_FOR_BODY * traffic.bodyBytes +
    // Windows are opened again for what was sent.
    bytes.written / 8;
  return bytes.read > explained;
}

/** A body that is not read may fill the window of its stream. */
const WINDOW_BYTES = 128 * 1024;
