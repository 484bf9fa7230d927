import type { ServerResponse } from 'node:http';
import { errorAnswer, type ErrorAnswer } from './error-answer.ts';
import { sendJson } from './send-json.ts';
import { traceOf } from './trace.ts';

/** The answer to a request that failed, as a handler returns it. */
export function failureResponse(response: ServerResponse, error: unknown): Response {
  const answer = explain(response, error);
  return sendJson(response, answer.body, answer.status, answer.headers);
}

/** Answers a request that failed outside of a handler. An answer that has begun is cut off. */
export function answerFailure(response: ServerResponse, error: unknown): void {
  if (!response.headersSent) return void failureResponse(response, error);
  explain(response, error);
  response.destroy();
}

/** What the answer leaves out is noted for the log. */
function explain(response: ServerResponse, error: unknown): ErrorAnswer {
  const answer = errorAnswer(error);
  if (answer.cause !== undefined) traceOf(response).error = answer.cause;
  return answer;
}
