/** The timeout that a request ended by, if it was one. */
export function timeoutIn(error: unknown): NodeJS.ErrnoException | undefined {
  const { cause } = error as Error;
  return cause instanceof Error && cause.name === 'TimeoutError' ? cause : undefined;
}

/**
 * What the body of an answer says went wrong: its `message` where it is JSON, and all of it where a proxy has
 * answered. Bounded.
 */
export function saidIn(body: string): string {
  let said = body;
  try {
    const parsed: unknown = JSON.parse(body);
    if (parsed !== null && typeof parsed === 'object' && 'message' in parsed) said = String(parsed.message);
  } catch {
    // Somebody answers in plain words.
  }
  return said.trim().slice(0, 1000) || 'nothing';
}
