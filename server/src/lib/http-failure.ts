/** The timeout that ended a request, if it was one. */
export function timeoutIn(error: unknown): NodeJS.ErrnoException | undefined {
  const { cause } = error as Error;
  return cause instanceof Error && cause.name === 'TimeoutError' ? cause : undefined;
}

/**
 * The error in a response body: its `message` if it is JSON, otherwise the text, such as that of a proxy.
 * Bounded.
 */
export function saidIn(body: string): string {
  let said = body;
  try {
    const parsed: unknown = JSON.parse(body);
    if (parsed !== null && typeof parsed === 'object' && 'message' in parsed) said = String(parsed.message);
  } catch {
    // The body is plain text.
  }
  return said.trim().slice(0, 1000) || 'nothing';
}
