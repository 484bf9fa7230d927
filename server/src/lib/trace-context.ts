/** The trace of a request, as W3C Trace Context writes it in `traceparent`. */
import { randomBytes } from 'node:crypto';

export interface TraceContext {
  traceId: string;
  spanId: string;
  sampled: boolean;
}

const SHAPE = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/** A malformed value counts as absent. */
export function parseTraceparent(text: string | undefined): TraceContext | undefined {
  const match = text === undefined || text.length > 512 ? undefined : SHAPE.exec(text);
  if (!match) return undefined;
  const [, version, traceId, spanId, flags, more] = match as unknown as [
    string,
    string,
    string,
    string,
    string,
    string?,
  ];
  if (
    version === 'ff' ||
    (version === '00' && more !== undefined) ||
    /^0+$/.test(traceId) ||
    /^0+$/.test(spanId)
  )
    return undefined;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

export function formatTraceparent({ traceId, spanId, sampled }: TraceContext): string {
  return `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`;
}

/** A span in the parent's trace, or the first of a new one. */
export function childOf(parent: TraceContext | undefined): TraceContext {
  return {
    traceId: parent?.traceId ?? randomBytes(16).toString('hex'),
    spanId: randomBytes(8).toString('hex'),
    sampled: parent?.sampled ?? true,
  };
}
