/** The reference of error codes as Markdown, from the list that maps them and the comments in it. */
import { ERRORS } from '../sdk/src/protocol/error.ts';

const INTRODUCTION = `# Errors

Generated from \`sdk/src/protocol/error.ts\` by \`node scripts/generate-api-reference.ts\`; a test checks that it is current.

Every failure has one of these codes. The list is closed. Over HTTP the body is

\`\`\`json
{ "error": { "code": "not_found", "message": "Sandbox \\"box\\" does not exist", "details": {}, "hint": "…" } }
\`\`\`

\`details\` and \`hint\` may be absent. In the SDK it is a \`CayError\` with the same fields and \`retryable\`. On the command line it is
\`error: …\` and, where there is one, \`hint: …\` on standard error, and the exit code.

A command that exits with something else than 0 is not an error. Its end is part of the result.
`;

export function errorReference(source: string): string {
  const rows = Object.entries(ERRORS).map(([code, { status, exitCode, retryable }]) => {
    const meaning = new RegExp(`/\\*\\* (.+) \\*/\\n  ${code}: `).exec(source)?.[1];
    if (meaning === undefined) throw new Error(`The code "${code}" has no comment that says what it means`);
    return `| \`${code}\` | ${status} | ${exitCode} | ${retryable ? 'yes' : 'no'} | ${meaning} |`;
  });
  return `${INTRODUCTION}
| code | HTTP | exit code | retry | meaning |
|---|---|---|---|---|
${rows.join('\n')}

\`cay run\`, \`exec\`, \`shell\` and \`attach\` exit with the command's own code, and with 125 where Cay itself fails: see
[the command line](cli.md#exit-codes).
`;
}
