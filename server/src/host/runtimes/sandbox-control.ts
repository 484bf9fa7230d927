/**
 * Calls the control socket of a gVisor sandbox: one JSON value each way. Does in a millisecond what `runsc`
 * would be spawned for.
 */
import { connect } from 'node:net';

/** Larger than any answer. */
const MAX_ANSWER = 65_536;

/** Resolves when the sandbox has done it. */
export function callSandbox(socketPath: string, method: string, timeoutMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath);
    let text = '';
    const settle = (error?: Error) => {
      socket.destroy();
      if (error) reject(error);
      else resolve();
    };
    socket.setTimeout(timeoutMs, () =>
      settle(new Error(`${method} was not answered within ${timeoutMs} ms`)),
    );
    socket.on('error', settle);
    socket.on('close', () => settle(new Error(`The sandbox hung up on ${method}`)));
    socket.on('data', (chunk) => {
      text += chunk.toString();
      if (parse(text)) settle(answerError(text, method));
      else if (text.length > MAX_ANSWER) settle(new Error(`The answer to ${method} has no end`));
    });
    socket.write(JSON.stringify({ method, arg: {} }));
  });
}

/** What the sandbox answered, as an error unless it did what it was asked for. */
export function answerError(text: string, method: string): Error | undefined {
  const answer = parse(text);
  if (answer?.success === true) return undefined;
  return new Error(typeof answer?.err === 'string' ? answer.err : `${method} failed`);
}

/** Undefined until it is complete. */
function parse(text: string): { success?: unknown; err?: unknown } | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return undefined;
  }
}
