export { layerOf, programLayer, writeImage } from '../../../packaging/images/image.ts';
