import { promisify } from 'node:util';
import { deflate } from 'node:zlib';

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~';
const LINE_BYTES = 52;
const deflated = promisify(deflate);

/** Content in git's way for what is not text: compressed, in base 85, with a length before each line. */
export async function binaryLiteral(content: Buffer): Promise<string> {
  const bytes: Buffer = await deflated(content);
  const lines = [`literal ${content.length}`];
  for (let at = 0; at < bytes.length; at += LINE_BYTES) {
    const line = bytes.subarray(at, at + LINE_BYTES);
    const length = line.length <= 26 ? 64 + line.length : 96 + line.length - 26;
    lines.push(String.fromCharCode(length) + base85(line));
  }
  return `${lines.join('\n')}\n\n`;
}

function base85(bytes: Buffer): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += 4) {
    let word = 0;
    for (let index = 0; index < 4; index++) word = word * 256 + (bytes[at + index] ?? 0);
    let digits = '';
    for (let index = 0; index < 5; index++) {
      digits = DIGITS[word % 85]! + digits;
      word = Math.floor(word / 85);
    }
    text += digits;
  }
  return text;
}
